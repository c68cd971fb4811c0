// StepPlan: which matrices step together, who moves them, and in which order.
//
//   layers, geometry  -- route() -->  a rule and an owner for every layer, batches of alike matrices
//
// The optimizer steps by it, the recorder measures by it, initialize() draws weights by it. A batch holds the matrices
// of one owner with the same rule, group, shape, norm, dtype and device. With several ranks a layer belongs to exactly
// one of them; every rank makes the same plan.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "gluon/geometry/geometry.h"

namespace gluon {

struct RouteOptions {
  std::string orthogonalizer{kDefaultOrthogonalizer};  // inside "spectral" norms that name none
  int ranks = 1;
};

struct StepPlan {
  struct Batch {
    std::size_t rule = 0;  // into Geometry::rules()
    int owner = 0;
    int64_t phase = 0;  // place among the owner's batches
    NormPtr norm{};
    std::vector<Block> blocks{};
    std::vector<std::size_t> layers{};  // of each block
    std::vector<std::size_t> places{};  // of each block, into `names`
  };

  struct AdamWLayer {
    std::size_t layer = 0;
    std::size_t place = 0;  // into `names`
  };

  std::vector<std::size_t> rules{};  // of each layer, into Geometry::rules()
  std::vector<int> owners{};         // of each layer
  std::vector<Batch> batches{};      // by owner, then by phase
  std::vector<AdamWLayer> adamw{};   // step after the batches
  std::vector<std::string> names{};  // of all matrices, for AdamW of layers, in the order of the layers

  /// The phase after which each layer has been moved; AdamW's layers come after all batches.
  std::vector<int64_t> phases() const;
};

/// Throws InputError when a layer has no rule, a rule's pattern no layer, or a norm or split does not fit its layer.
StepPlan route(std::span<const Layer> layers, const Geometry& geometry, const RouteOptions& options = {});

/// About how much work a step of a layer is: flops of its blocks' orthogonalization, entries for other norms.
double step_cost(std::span<const Block> blocks, const Rule& rule);

/// The owner of each cost, 0..ranks - 1: the largest cost first, each to the rank with the least so far.
std::vector<int> balance(std::span<const double> costs, int ranks);

}  // namespace gluon
