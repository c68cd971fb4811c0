// Samples of smoothness, measured by the owners of the layers, brought together.

#pragma once

#include "gluon/distributed/collective.h"
#include "gluon/smoothness/sample.h"

namespace gluon {

/// The samples of all ranks, on all of them; each lists the same layers.
Trajectory gather_samples(Collective& collective, const Trajectory& mine);

}  // namespace gluon
