#include "lab/report/group_history.h"

#include <cmath>
#include <map>

#include "gluon/fit/median.h"
#include "gluon/fit/radii.h"

namespace gluon::lab {
namespace {

struct Cell {
  std::vector<double> alignment, used, predicted;
};

void add_known(std::vector<double>& values, double value) {
  if (!std::isnan(value)) values.push_back(value);
}

}  // namespace

std::vector<GroupHistory> group_histories(const Trajectory& trajectory, const TrajectoryFit& fits) {
  std::map<std::string, const Fit*> fitted;
  for (const LayerFit& layer : fits.layers) fitted[layer.layer] = &layer.fit;
  std::vector<std::string> order;
  std::map<std::string, std::map<int64_t, Cell>> groups;
  for (const LayerTrajectory& layer : trajectory.layers) {
    if (groups.count(layer.group) == 0) order.push_back(layer.group);
    const auto fit = fitted.find(layer.layer);
    for (const Sample& sample : layer.samples) {
      Cell& cell = groups[layer.group][sample.step];
      add_known(cell.alignment, sample.alignment);
      add_known(cell.used, sample.radius);
      if (fit == fitted.end()) continue;
      add_known(cell.predicted, predicted_radius(fit->second->l0, fit->second->l1, sample.gradient));
    }
  }
  std::vector<GroupHistory> histories;
  for (const std::string& group : order) {
    GroupHistory& history = histories.emplace_back(GroupHistory{.group = group});
    for (const auto& [step, cell] : groups[group]) {
      history.steps.push_back(step);
      history.alignment.push_back(median(cell.alignment));
      history.used.push_back(median(cell.used));
      history.predicted.push_back(median(cell.predicted));
    }
  }
  return histories;
}

}  // namespace gluon::lab
