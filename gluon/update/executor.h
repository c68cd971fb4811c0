// Executor: moves batches of layers by one step.
//
//   PlainExecutor   ATen and BLAS on any device, stage by stage: the specification
//   FusedExecutor   one launch for all batches on a Hopper GPU, which also judges the gradients
//
// The optimizer gives each batch to the fused executor where it fits, to the plain one elsewhere.

#pragma once

#include <functional>
#include <span>
#include <string>

#include "gluon/core/batch_step.h"
#include "gluon/update/layer_batch.h"
#include "gluon/update/radius_multipliers.h"

namespace gluon {

/// One step k as all executors see it.
struct StepContext {
  int64_t step = 0;
  RadiusMultipliers multipliers{};
  std::function<void(const BatchStep&)> observe{};  // after a batch has moved; empty: nobody watches
  std::function<void(const LayerBatch&)> moved{};   // its parameters may be sent to other ranks
};

class Executor {
 public:
  virtual ~Executor() = default;

  /// Moves `batches`, whose blocks may lack gradients; those stay where they are.
  virtual void run(std::span<LayerBatch* const> batches, const StepContext& now) = 0;

  /// The first block of the last run whose gradient was not finite; that run moved nothing. Null when there is none, or
  /// when the executor leaves it to the caller to judge gradients before the run. May wait for the device.
  virtual const Block* bad_block() { return nullptr; }
};

/// Rethrows the exception that is being handled with "<what>, layer '<name>': " before its message. An InputError stays
/// one, running out of memory stays what it is, everything else becomes a std::runtime_error.
[[noreturn]] void rethrow_with_layer(const std::string& what, const Block& block);

}  // namespace gluon
