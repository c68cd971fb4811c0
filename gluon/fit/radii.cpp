#include "gluon/fit/radii.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"

namespace gluon {
namespace {

struct Columns {
  std::vector<double> l0, l1, gradient, predicted, used;
  std::string doubt;  // of one of the layers
};

// Constants of 0 give no radius: they must not push doubtful layers aside.
bool is_trusted(const LayerFit& layer) { return layer.fit.doubt.empty() && layer.fit.l0 + layer.fit.l1 > 0; }

std::string reasons(const TrajectoryFit& fits) {
  if (fits.unfitted.empty()) return "the gradient of no layer changed";
  return join("layer '", fits.unfitted[0].layer, "': ", fits.unfitted[0].reason);
}

}  // namespace

double predicted_radius(double l0, double l1, double gradient) {
  if (l0 == 0) return l1 == 0 ? std::nan("") : 1 / l1;
  return gradient / (l0 + l1 * gradient);
}

std::vector<LayerFit> deciding_fits(const TrajectoryFit& fits) {
  std::set<std::string> trusted;
  for (const LayerFit& layer : fits.layers) {
    if (is_trusted(layer)) trusted.insert(layer.group);
  }
  std::vector<LayerFit> deciding = fits.layers;
  std::erase_if(deciding, [&](const LayerFit& layer) { return trusted.contains(layer.group) && !is_trusted(layer); });
  return deciding;
}

std::vector<GroupRadius> predict_radii(const TrajectoryFit& fits) {
  std::vector<GroupRadius> radii;
  std::map<std::string, Columns> groups;
  for (const LayerFit& layer : deciding_fits(fits)) {
    const double l0 = layer.fit.l0, l1 = layer.fit.l1;
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
    if (!layer.fit.doubt.empty()) columns.doubt = join("in layer '", layer.layer, "' ", layer.fit.doubt);
  }
  GLUON_CHECK(!radii.empty(), "radii: none of the ", fits.layers.size() + fits.unfitted.size(),
              " layers gives a radius; ", reasons(fits));
  for (GroupRadius& radius : radii) {
    const auto& [l0, l1, gradient, predicted, used, doubt] = groups[radius.group];
    radius = {.group = radius.group,
              .layers = static_cast<int64_t>(l0.size()),
              .l0 = median(l0),
              .l1 = median(l1),
              .gradient = median(gradient),
              .predicted = median(predicted),
              .used = median(used)};
    if (doubt.empty()) continue;
    radius.doubt = join("none of its ", l0.size(), " fits can be trusted: ", doubt);
  }
  return radii;
}

FullRadiusSamples at_full_radius(Trajectory trajectory, int64_t halvings) {
  FullRadiusSamples selection;
  const double share = kFullRadius * std::ldexp(1.0, -static_cast<int>(std::clamp<int64_t>(halvings, 0, 1000)));
  for (LayerTrajectory& layer : trajectory.layers) {
    double largest = 0;
    for (const Sample& sample : layer.samples) largest = std::fmax(largest, sample.radius);
    selection.all += static_cast<int64_t>(layer.samples.size());
    std::erase_if(layer.samples, [&](const Sample& sample) { return sample.radius < share * largest; });
    selection.kept += static_cast<int64_t>(layer.samples.size());
  }
  selection.trajectory = std::move(trajectory);
  return selection;
}

}  // namespace gluon
