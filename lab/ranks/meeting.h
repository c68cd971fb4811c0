// Meeting: the ranks join at a store, and all of them learn who is missing or does not fit.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

#include "gluon/distributed/ranks.h"

namespace gluon::lab {

/// Returns when all ranks have joined. Throws RankLost naming those that did not within the timeout, and InputError
/// when two processes have the same rank, or ranks differ in WORLD_SIZE. All ranks that have joined throw the same.
void join_or_fail(c10d::Store& store, const Ranks& ranks);

/// "rank 2", "ranks 1, 2 and 5".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace gluon::lab
