#include "lab/train/mean_radii.h"

#include <map>

namespace gluon::lab {

std::vector<std::pair<std::string, double>> mean_radii(const Optimizer& optimizer) {
  std::map<std::string, Role> roles;
  for (const Layer& layer : optimizer.layers()) roles[layer.name] = layer.role;
  std::map<std::string, std::pair<double, int64_t>> sums;
  for (const LayerRadius& entry : optimizer.effective_radii()) {
    // "experts[3]" belongs to the layer "experts".
    const auto role = roles.find(entry.name.substr(0, entry.name.find('[')));
    if (role == roles.end()) continue;
    auto& [sum, count] = sums[std::string(role_name(role->second))];
    sum += entry.radius;
    ++count;
  }
  std::vector<std::pair<std::string, double>> means;
  for (const auto& [role, sum] : sums) means.emplace_back(role, sum.first / static_cast<double>(sum.second));
  return means;
}

}  // namespace gluon::lab
