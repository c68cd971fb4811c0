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
  std::vector<std::string> order;
  std::map<std::string, Columns> groups;
  for (const LayerFit& layer : fits.layers) {
    const double l0 = layer.fit.l0;
    const double l1 = layer.fit.l1;
    const double predicted = predicted_radius(l0, l1, layer.gradient);
    if (std::isnan(predicted)) continue;
    if (groups.count(layer.group) == 0) order.push_back(layer.group);
    Columns& columns = groups[layer.group];
    columns.l0.push_back(l0);
    columns.l1.push_back(l1);
    columns.gradient.push_back(layer.gradient);
    columns.predicted.push_back(predicted);
    if (!std::isnan(layer.radius)) columns.used.push_back(layer.radius);
  }
  GLUON_CHECK(!order.empty(), "radii: none of the ", fits.layers.size() + fits.unfitted.size(),
              " layers gives a radius; ", reasons(fits));
  std::vector<GroupRadius> radii;
  for (const std::string& name : order) {
    const Columns& columns = groups[name];
    radii.push_back({name, static_cast<int64_t>(columns.l0.size()), median(columns.l0), median(columns.l1),
                     median(columns.gradient), median(columns.predicted), median(columns.used)});
  }
  return radii;
}

}  // namespace gluon
