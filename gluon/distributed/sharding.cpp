#include "gluon/distributed/sharding.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace gluon {

namespace {

// Four steps of a k x l matrix, symmetric products at half their flops; long matrices in Gram form.
double polar_cost(double k, double l) {
  constexpr double kLong = 1.25;
  return l <= kLong * k ? 4 * (3 * k * k * l + k * k * k) : 3 * k * k * l + 13 * k * k * k;
}

// The same shares, the ranks in the order in which the backward pass reaches their layers: exchanges that follow each
// other then have neighbours as roots, and in a ring the next one starts a hop after the last.
std::vector<int> numbered_from_last(std::vector<int> owners) {
  std::map<int, int> places;
  for (auto owner = owners.rbegin(); owner != owners.rend(); ++owner) {
    places.emplace(*owner, static_cast<int>(places.size()));
  }
  for (int& owner : owners) owner = places.at(owner);
  return owners;
}

}  // namespace

double step_cost(const Layer& layer, const Rule& rule) {
  const auto entries = static_cast<double>(layer.parameter.numel());
  if (rule.norm.is_adamw()) return entries;
  const bool orthogonalizes = rule.norm.name().find("spectral") != std::string::npos;
  double cost = 0;
  for (const Block& block : split_blocks(layer, rule.split)) {
    const auto rows = static_cast<double>(block.shape.rows), columns = static_cast<double>(block.shape.cols);
    cost += orthogonalizes ? polar_cost(std::min(rows, columns), std::max(rows, columns)) : rows * columns;
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
  return numbered_from_last(assign_owners(costs, ranks));
}

}  // namespace gluon
