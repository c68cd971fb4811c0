#include "gluon/plan/step_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "gluon/lmo/orthogonalize/polar_iteration.h"

namespace gluon {
namespace {

// Flops of the default iteration, three steps with nine squares, on a k x l matrix, k <= l; symmetric products need half
// of theirs.
double polar_cost(double k, double l) {
  return l <= kGramAspect * k ? 9 * k * k * l + 9 * k * k * k : 6 * k * k * l + 12 * k * k * k;
}

// Renumbers the ranks in the order in which the backward pass reaches their layers, so that consecutive exchanges have
// neighbouring roots: in a ring the next one starts one hop after the last.
std::vector<int> numbered_from_last(std::vector<int> owners) {
  std::map<int, int> places;
  for (auto owner = owners.rbegin(); owner != owners.rend(); ++owner) {
    places.emplace(*owner, static_cast<int>(places.size()));
  }
  for (int& owner : owners) owner = places.at(owner);
  return owners;
}

}  // namespace

std::vector<int64_t> StepPlan::phases() const {
  // A layer that is split over several batches is finished by the last of them. The largest number means "send at the
  // end" to LayerOwners.
  std::vector<int64_t> phases(rules.size(), std::numeric_limits<int64_t>::max() - 1);
  for (const Batch& batch : batches) {
    for (const std::size_t layer : batch.layers) phases[layer] = batch.phase;
  }
  return phases;
}

double step_cost(std::span<const Block> blocks, const Rule& rule) {
  double cost = 0;
  for (const Block& block : blocks) {
    const auto rows = static_cast<double>(block.shape.rows), columns = static_cast<double>(block.shape.cols);
    cost += rule.norm.is_spectral() ? polar_cost(std::min(rows, columns), std::max(rows, columns)) : rows * columns;
  }
  return cost;
}

std::vector<int> balance(std::span<const double> costs, int ranks) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners(costs.size());
  for (const std::size_t layer : order) {
    const auto lightest = std::min_element(loads.begin(), loads.end());
    *lightest += costs[layer];
    owners[layer] = static_cast<int>(lightest - loads.begin());
  }
  return owners;
}

StepPlan route(std::span<const Layer> layers, const Geometry& geometry, const RouteOptions& options) {
  StepPlan plan;
  plan.rules = geometry.assign(layers);
  std::vector<std::vector<Block>> blocks;
  std::vector<double> costs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Rule& rule = geometry.rules()[plan.rules[i]];
    const bool adamw = rule.norm.is_adamw();  // works on entries, whatever matrices they form
    const std::string_view split = rule.split.empty() ? usual_split(layers[i]) : rule.split;
    blocks.push_back(adamw ? std::vector<Block>() : split_blocks(layers[i], split));
    costs.push_back(adamw ? static_cast<double>(layers[i].parameter.numel()) : step_cost(blocks.back(), rule));
  }
  plan.owners = numbered_from_last(balance(costs, options.ranks));

  // The key is the order of the batches, so that runs repeat exactly.
  using Key = std::tuple<int, std::size_t, int64_t, int64_t, int64_t, std::string, at::ScalarType, std::string>;
  std::map<Key, StepPlan::Batch> batches;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const Rule& rule = geometry.rules()[plan.rules[i]];
    if (rule.norm.is_adamw()) {
      plan.adamw.push_back({i, plan.names.size()});
      plan.names.push_back(layer.name);
      continue;
    }
    for (Block& block : blocks[i]) {
      NormPtr norm = rule.norm.resolve(block.shape, options.orthogonalizer);
      const Key key(plan.owners[i], plan.rules[i], layer.group, block.shape.rows, block.shape.cols, norm->name(),
                    layer.parameter.scalar_type(), layer.parameter.device().str());
      StepPlan::Batch& batch = batches[key];
      if (!batch.norm) batch.norm = std::move(norm);
      batch.rule = plan.rules[i];
      batch.owner = plan.owners[i];
      batch.layers.push_back(i);
      batch.places.push_back(plan.names.size());
      plan.names.push_back(block.name);
      batch.blocks.push_back(std::move(block));
    }
  }
  std::map<int, int64_t> next_phase;
  for (auto& [key, batch] : batches) {
    batch.phase = next_phase[batch.owner]++;
    plan.batches.push_back(std::move(batch));
  }
  return plan;
}

}  // namespace gluon
