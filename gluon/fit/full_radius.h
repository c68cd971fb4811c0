// Selects the samples outside of warmup and cooldown: Lhat depends on the radius, so a fit that predicts radii must not
// mix samples of very different radii.

#pragma once

#include <cstdint>

#include "gluon/smoothness/sample.h"

namespace gluon {

inline constexpr double kFullRadius = 0.9;  // share of the layer's largest radius

struct FullRadiusSamples {
  Trajectory trajectory;
  int64_t kept = 0;
  int64_t all = 0;
};

/// Removes the samples whose radius is below kFullRadius of their layer's largest. Samples without a radius stay.
FullRadiusSamples at_full_radius(Trajectory trajectory);

}  // namespace gluon
