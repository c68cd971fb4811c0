#include "gluon/distributed/sharding.h"

#include <algorithm>
#include <numeric>

namespace gluon {

double step_cost(const Layer& layer, const Rule& rule) {
  const auto entries = static_cast<double>(layer.parameter.numel());
  if (rule.norm.is_adamw()) return entries;
  const bool orthogonalizes = rule.norm.name().find("spectral") != std::string::npos;
  double cost = 0;
  for (const Block& block : split_blocks(layer, rule.split)) {
    const auto rows = static_cast<double>(block.shape.rows), columns = static_cast<double>(block.shape.cols);
    cost += rows * columns * (orthogonalizes ? std::min(rows, columns) : 1);
  }
  return cost;
}

std::vector<int> assign_owners(std::span<const double> costs, int ranks) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners(costs.size());
  for (const std::size_t layer : order) {
    const auto lightest = std::min_element(loads.begin(), loads.end());
    *lightest += costs[layer];
    owners[layer] = static_cast<int>(lightest - loads.begin());
  }
  return owners;
}

std::vector<int> assign_layers(std::span<const Layer> layers, const Geometry& geometry,
                               std::span<const std::size_t> assignment, int ranks) {
  std::vector<double> costs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    costs.push_back(step_cost(layers[i], geometry.rules()[assignment[i]]));
  }
  return assign_owners(costs, ranks);
}

}  // namespace gluon
