// The samples from outside warmup and cooldown: Lhat depends on the radius, and radii must not come from a fit that
// mixes them up.

#pragma once

#include <cstdint>

#include "gluon/smoothness/sample.h"

namespace gluon {

inline constexpr double kFullRadius = 0.9;  // of the largest radius of the layer

struct FullRadiusSamples {
  Trajectory trajectory;
  int64_t kept = 0;
  int64_t all = 0;
};

/// `trajectory` without the samples whose radius is below kFullRadius of their layer's largest. Samples that do not
/// know their radius stay.
FullRadiusSamples at_full_radius(Trajectory trajectory);

}  // namespace gluon
