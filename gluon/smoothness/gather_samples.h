// Collects the smoothness samples that the owners of the layers measured.

#pragma once

#include "gluon/distributed/collective.h"
#include "gluon/smoothness/sample.h"

namespace gluon {

/// Returns the samples of all ranks, on every rank. `mine` lists the same layers in the same order on each.
Trajectory gather_samples(Collective& collective, const Trajectory& mine);

}  // namespace gluon
