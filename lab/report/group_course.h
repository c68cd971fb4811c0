// GroupCourse: what a group of layers did over a run, the median over its layers at each sampled step.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "gluon/smoothness/sample.h"

namespace gluon::lab {

struct GroupCourse {
  std::string group;
  std::vector<int64_t> steps;     // rising; the columns below have as many values, NaN where none is known
  std::vector<double> alignment;  // -<g, d> / (|g|* |d|)
  std::vector<double> used;       // the radius
  std::vector<double> predicted;  // |g|* / (L0 + L1 |g|*) with the constants of `fits`
};

/// One entry per group, in the order of their first layer.
std::vector<GroupCourse> group_courses(const Trajectory& trajectory, const TrajectoryFit& fits);

}  // namespace gluon::lab
