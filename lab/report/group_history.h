// GroupHistory: alignment and radii of a group of layers over a run, as medians over its layers at each sampled step.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "gluon/smoothness/sample.h"

namespace gluon::lab {

struct GroupHistory {
  std::string group;
  std::vector<int64_t> steps;     // ascending; the columns below have one value per step, NaN if unknown
  std::vector<double> alignment;  // -<g, d> / (|g|* |d|)
  std::vector<double> used;       // radius
  std::vector<double> predicted;  // |g|* / (L0 + L1 |g|*) with the constants of `fits`
};

/// One entry per group, in the order of their first layer.
std::vector<GroupHistory> group_histories(const Trajectory& trajectory, const TrajectoryFit& fits);

}  // namespace gluon::lab
