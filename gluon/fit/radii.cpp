#include "gluon/fit/radii.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gluon/check.h"

namespace gluon {
namespace {

// The middle one, or the mean of the middle two; NaN of none.
double median(std::vector<double> values) {
  if (values.empty()) return Sample::kMissing;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Columns {
  std::vector<double> l0, l1, gradient, predicted, used;
};

}  // namespace

std::vector<GroupRadius> predict_radii(const Trajectory& trajectory, const TrajectoryFit& fits) {
  std::map<std::string, const LayerTrajectory*> layers;
  for (const LayerTrajectory& layer : trajectory.layers) layers[layer.layer] = &layer;
  std::vector<std::string> order;
  std::map<std::string, Columns> groups;
  for (const LayerFit& layer : fits.layers) {
    const auto& [l0, l1] = std::pair(layer.fit.l0, layer.fit.l1);
    if (l0 + l1 == 0) continue;  // the gradient never changed: any radius would do
    if (groups.count(layer.group) == 0) order.push_back(layer.group);
    Columns& columns = groups[layer.group];
    std::vector<double> gradients;
    for (const Sample& sample : layers.at(layer.layer)->samples) {
      gradients.push_back(sample.gradient);
      if (!std::isnan(sample.radius)) columns.used.push_back(sample.radius);
    }
    const double gradient = median(std::move(gradients));
    columns.l0.push_back(l0);
    columns.l1.push_back(l1);
    columns.gradient.push_back(gradient);
    columns.predicted.push_back(gradient / (l0 + l1 * gradient));
  }
  GLUON_CHECK(!order.empty(), "radii: no layer could be fitted");
  std::vector<GroupRadius> radii;
  for (const std::string& name : order) {
    const Columns& columns = groups[name];
    radii.push_back({name, static_cast<int64_t>(columns.l0.size()), median(columns.l0), median(columns.l1),
                     median(columns.gradient), median(columns.predicted), median(columns.used)});
  }
  return radii;
}

}  // namespace gluon
