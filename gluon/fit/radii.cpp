#include "gluon/fit/radii.h"

#include <cmath>
#include <map>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"

namespace gluon {
namespace {

struct Columns {
  std::vector<double> l0, l1, gradient, predicted, used;
};

std::string reasons(const TrajectoryFit& fits) {
  if (fits.unfitted.empty()) return "the gradient of no layer changed";
  return join("layer '", fits.unfitted[0].layer, "': ", fits.unfitted[0].reason);
}

}  // namespace

double predicted_radius(double l0, double l1, double gradient) {
  if (l0 == 0) return l1 == 0 ? std::nan("") : 1 / l1;
  return gradient / (l0 + l1 * gradient);
}

std::vector<GroupRadius> predict_radii(const TrajectoryFit& fits) {
  std::vector<GroupRadius> radii;
  std::map<std::string, Columns> groups;
  for (const LayerFit& layer : fits.layers) {
    const auto& [l0, l1, mse_rel, violations, samples] = layer.fit;
    const double predicted = predicted_radius(l0, l1, layer.gradient);
    if (std::isnan(predicted)) continue;
    const auto [entry, first] = groups.try_emplace(layer.group);
    if (first) radii.push_back({.group = layer.group});
    Columns& columns = entry->second;
    columns.l0.push_back(l0);
    columns.l1.push_back(l1);
    columns.gradient.push_back(layer.gradient);
    columns.predicted.push_back(predicted);
    if (!std::isnan(layer.radius)) columns.used.push_back(layer.radius);
  }
  GLUON_CHECK(!radii.empty(), "radii: none of the ", fits.layers.size() + fits.unfitted.size(),
              " layers gives a radius; ", reasons(fits));
  for (GroupRadius& radius : radii) {
    const auto& [l0, l1, gradient, predicted, used] = groups[radius.group];
    radius = {
        radius.group, static_cast<int64_t>(l0.size()), median(l0), median(l1), median(gradient), median(predicted),
        median(used)};
  }
  return radii;
}

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
