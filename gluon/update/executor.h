// Executor: moves batches of layers by one step.
//
//   PlainExecutor   ATen and BLAS on any device, stage by stage: the specification
//   FusedExecutor   one launch for all batches on a GPU with kernels, which also judges the gradients
//
// The optimizer gives each batch to the fused executor where it fits, to the plain one elsewhere.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "gluon/core/batch_step.h"

namespace gluon {

class LayerBatch;

/// The factor on the radii of one step: one number for all layers times one for each group of layers (Layer::group), as
/// torch's parameter groups have a learning rate each.
struct RadiusMultipliers {
  double all = 1;
  std::map<int64_t, double> groups{};  // 1 where it says nothing

  double of(const Layer& layer) const {
    const auto found = groups.find(layer.group);
    return found == groups.end() ? all : all * found->second;
  }
};

/// One step as the executors and AdamW see it.
struct StepContext {
  int64_t step = 0;  // k
  RadiusMultipliers multipliers{};
  std::function<void(const BatchStep&)> observe{};  // after a batch has moved; empty: nobody watches
  std::function<void(const LayerBatch&)> moved{};   // its parameters may be sent to other ranks
};

class Executor {
 public:
  virtual ~Executor() = default;

  /// Moves `batches`; blocks without a gradient stay where they are.
  virtual void run(std::span<LayerBatch* const> batches, const StepContext& now) = 0;

  /// The first block of the last run whose gradient was not finite; that run moved nothing. Null when there is none, or
  /// when the executor leaves it to the caller to judge gradients before the run. May wait for the device.
  virtual const Block* bad_block() { return nullptr; }
};

}  // namespace gluon
