// Samples of smoothness, measured by the owners of the layers, brought together.

#pragma once

#include "gluon/smoothness/sample.h"
#include "lab/train/rank_share.h"

namespace gluon::lab {

/// The samples of all ranks, each of which lists the same layers.
Trajectory gather_samples(const RankShare& share, const Trajectory& mine);

}  // namespace gluon::lab
