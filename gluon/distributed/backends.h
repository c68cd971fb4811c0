// The backends of make_collective(); each file stands in for one that LibTorch has or has not.

#pragma once

#include "gluon/distributed/collective.h"

namespace gluon {

CollectivePtr make_gloo(const Ranks& ranks);
CollectivePtr make_nccl(const Ranks& ranks);

}  // namespace gluon
