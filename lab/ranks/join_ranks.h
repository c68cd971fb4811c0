// Joins the ranks of a training run and watches them: when an exchange fails, every rank reports which rank died, hangs
// or stopped with an error.

#pragma once

#include <string_view>

#include "gluon/distributed/collective.h"

namespace gluon::lab {

/// make_collective() with a RankWatch. With "nccl" a lost rank ends the process with exit code 1.
CollectivePtr join_ranks(std::string_view backend, const Ranks& ranks);

}  // namespace gluon::lab
