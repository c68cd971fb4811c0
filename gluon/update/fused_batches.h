// FusedBatches: the layer batches of an optimizer that one kernels::FusedStep moves together.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gluon/kernels/fused_step.h"
#include "gluon/update/layer_batch.h"
#include "gluon/update/radius_multipliers.h"

namespace gluon {

class FusedBatches {
 public:
  explicit FusedBatches(int64_t scratch_bytes) : scratch_bytes_(scratch_bytes) {}

  /// Chooses who takes part in this step: batches that fit the kernels and have all their gradients.
  void choose(std::vector<LayerBatch>& batches, int64_t step, const RadiusMultipliers& multipliers);

  bool contains(const LayerBatch& batch) const;
  const std::vector<LayerBatch*>& members() const { return members_; }

  /// Moves the members; nothing waits for the device.
  void run();

  /// Waits for the verdict on the gradients of the last run, unless it is forgotten: the first block with one that is
  /// not finite. Such a run has moved nothing.
  const Block* bad_block() const;
  void forget();

  /// Says that momentum was loaded; forgets the last run.
  void momentum_changed();

 private:
  int64_t scratch_bytes_;
  std::vector<std::optional<LayerBatch::Fused>> fused_;  // of all batches
  std::vector<LayerBatch*> members_;
  std::vector<kernels::FusedStep::Inputs> inputs_;
  std::unique_ptr<kernels::FusedStep> step_;                    // made for `members_`
  std::vector<std::unique_ptr<kernels::FusedStep>> in_graphs_;  // of the caller's, which may be replayed
};

}  // namespace gluon
