// FusedExecutor: moves all batches that fit the GPU's kernels together, by one kernels::FusedStep.
//
// A batch fits when its norm's LMO has a form (core/lmo_form.h), its radius is constant, its momentum has a buffer, and
// its parameters are contiguous float32 on a GPU of compute capability 8.0 or later (kernels::step_path). Spheres and
// normalised directions are only for polar batches, which all share one iteration.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gluon/kernels/fused_step.h"
#include "gluon/update/executor.h"
#include "gluon/update/layer_batch.h"

namespace gluon {

/// norm.lmo(g) for float32 or float64 (b, m, n). On such a GPU, float32 and a polar LMO are computed by the kernels:
/// normalised in float32, iterated and returned in float16.
at::Tensor device_lmo(const Norm& norm, const at::Tensor& g);

/// What of this rule has no kernels for layers with this norm, in a few words: its sphere or normalisation. Empty where
/// nothing lacks them.
std::string missing_kernels(const Rule& rule, const Norm& norm);

class FusedExecutor : public Executor {
 public:
  /// `batches` are all of the optimizer's; they must outlive the executor at the same addresses. `scratch_bytes` as in
  /// kernels::FusedStep.
  FusedExecutor(std::span<LayerBatch> batches, int64_t scratch_bytes);

  /// The batches that fit and have all their gradients now, in the optimizer's order.
  std::vector<LayerBatch*> select(const StepContext& now);

  /// Why select() leaves one of the constructor's batches out, in a few words.
  std::string why_not(const LayerBatch& batch) const;

  /// Puts the step on the device's stream without waiting for it. `batches` are those that select() has just returned.
  void run(std::span<LayerBatch* const> batches, const StepContext& now) override;

  /// Waits until the last run's gradients are judged. Without a bad block the run's radii become the batches' last.
  const Block* bad_block() override;

  /// Forgets the last run's verdict.
  void forget();

  /// Must be called after momentum was changed from outside; forgets the last run.
  void momentum_changed();

 private:
  void make_step(const std::vector<LayerBatch*>& batches);

  int64_t scratch_bytes_;
  std::vector<LayerBatch*> candidates_;             // that fit whenever they have all their gradients
  std::vector<kernels::FusedStep::Inputs> inputs_;  // of the batches that select() returned
  std::vector<LayerBatch*> members_;                // what step_ was made for
  std::unique_ptr<kernels::FusedStep> step_;        // null while there are no members
  std::vector<double> pending_;                     // radii of a run that has not been judged yet, one per member
};

}  // namespace gluon
