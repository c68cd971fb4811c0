// Sharding: which rank owns which layer.

#pragma once

#include <span>
#include <vector>

#include "gluon/geometry/geometry.h"

namespace gluon {

/// About how much work a step of the layer is: flops of its orthogonalization, entries for other norms.
double step_cost(const Layer& layer, const Rule& rule);

/// The owner of each cost, 0..ranks - 1: the largest first, each to the rank with the least so far. The same on every
/// rank.
std::vector<int> assign_owners(std::span<const double> costs, int ranks);

/// The owner of each layer; `assignment` says its rule.
std::vector<int> assign_layers(std::span<const Layer> layers, const Geometry& geometry,
                               std::span<const std::size_t> assignment, int ranks);

}  // namespace gluon
