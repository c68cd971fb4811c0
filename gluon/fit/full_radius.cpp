#include "gluon/fit/full_radius.h"

#include <cmath>

namespace gluon {

FullRadiusSamples at_full_radius(Trajectory trajectory) {
  FullRadiusSamples selection;
  for (LayerTrajectory& layer : trajectory.layers) {
    double largest = 0;
    for (const Sample& sample : layer.samples) largest = std::fmax(largest, sample.radius);
    selection.all += static_cast<int64_t>(layer.samples.size());
    std::erase_if(layer.samples, [&](const Sample& sample) { return sample.radius < kFullRadius * largest; });
    selection.kept += static_cast<int64_t>(layer.samples.size());
  }
  selection.trajectory = std::move(trajectory);
  return selection;
}

}  // namespace gluon
