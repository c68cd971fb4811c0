// Radii from fits: the radius of theorem 1 for each group of layers.
//
//   t = |g|* / (L0 + L1 |g|*)                                        (paper: theorem 1 and the experiments)
//
// (1 / L1 where L0 = 0). A group is the layers of one role, which share a radius; its numbers are medians over its
// layers, and |g|* of a layer is the median over the fitted samples. Layers with a doubtful fit do not take part, unless
// a group has no others. The prediction is only as good as the samples:
// with `consecutive` ones it is about 0.7 of the radius used in the run, at any radius (docs/tuning.md).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"

namespace gluon {

struct GroupRadius {
  std::string group;
  int64_t layers = 0;  // number of layers that take part
  double l0 = 0;
  double l1 = 0;
  double gradient = 0;   // |g|*
  double predicted = 0;  // t
  double used = 0;       // the median of the layers' radii; NaN when the samples have none, as under AdamW
  std::string doubt{};   // why the prediction means nothing, one clause: all fits of its layers are doubtful
};

/// t of a layer with these constants; NaN when both are 0: the gradient never changed and any radius is allowed.
double predicted_radius(double l0, double l1, double gradient);

/// The fits that decide the radii: without the doubtful ones of groups that have others.
std::vector<LayerFit> deciding_fits(const TrajectoryFit& fits);

/// One entry per group, in the order of their first layer. Layers whose gradient never changed are ignored. Throws
/// InputError with the reason when no layer is left.
std::vector<GroupRadius> predict_radii(const TrajectoryFit& fits);

/// The samples outside of warmup and cooldown: Lhat depends on the radius, so a fit that predicts radii must not mix
/// samples of very different radii.
inline constexpr double kFullRadius = 0.9;  // share of the layer's largest radius

struct FullRadiusSamples {
  Trajectory trajectory;
  int64_t kept = 0;
  int64_t all = 0;
};

/// Removes the samples whose radius is below kFullRadius of their layer's largest, which `halvings` of all radii during
/// the run made smaller. Samples without a radius stay.
FullRadiusSamples at_full_radius(Trajectory trajectory, int64_t halvings = 0);

}  // namespace gluon
