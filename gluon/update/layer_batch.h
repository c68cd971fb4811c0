// LayerBatch: the blocks that step together, with their stacked momentum.
//
// All blocks have the same matrix shape, norm, rule, group, dtype and device. A step walks over runs of blocks that
// have a gradient, cut so that scratch memory stays within its limit; each run becomes one BatchStep.

#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gluon/core/batch_step.h"
#include "gluon/geometry/geometry.h"
#include "gluon/kernels/fused_step.h"
#include "gluon/kernels/mirror.h"
#include "gluon/momentum/momentum.h"
#include "gluon/update/state.h"

namespace gluon {

class LayerBatch {
 public:
  /// `blocks` is not empty; all are alike as said above.
  LayerBatch(std::vector<Block> blocks, NormPtr norm, const Rule& rule, const Momentum& momentum);

  const std::vector<Block>& blocks() const { return blocks_; }
  const Norm& norm() const { return *norm_; }

  /// Another beta from the next step on; see Momentum::with_beta().
  void set_beta(double beta) { momentum_ = momentum_.with_beta(beta); }

  /// The radius each block moved by in its last step, (number of blocks); 0 before its first.
  const at::Tensor& last_radius() const { return last_radius_; }

  /// The runs of blocks with a gradient whose scratch (LMO input and direction) fits into `scratch_bytes`; a
  /// single matrix larger than that is a run of its own.
  std::vector<std::span<const Block>> runs(int64_t scratch_bytes) const;

  // The stages of one step, in order. Each fills its part of `batch`.
  BatchStep gather_gradients(std::span<const Block> run, int64_t step) const;
  void accumulate_momentum(BatchStep& batch);
  void choose_radius(BatchStep& batch, double multiplier);
  void move_parameters(const BatchStep& batch);

  /// The batch as a part of kernels::FusedStep, and the iteration it needs (none for signs); nothing where it does not
  /// fit: another norm, momentum, radius rule, dtype or device.
  struct Fused {
    kernels::FusedStack stack;
    const QuinticIteration* iteration = nullptr;
  };
  std::optional<Fused> fused() const;

  /// What a fused step needs; nothing when a gradient is missing or not contiguous. Notes the radius as the blocks'
  /// last.
  std::optional<kernels::FusedStep::Inputs> fused_inputs(int64_t step, double multiplier);

  /// What observers see of a fused step, after it.
  BatchStep fused_batch(int64_t step) const;

  std::size_t state_bytes() const { return buffer_.defined() ? buffer_.nbytes() : 0; }

  /// Names and sizes of the entries "momentum/<layer>" of a state, and copies to and from them.
  void list(std::map<std::string, std::vector<int64_t>>& entries) const;
  void save(OptimizerState& state) const;
  void load(const OptimizerState& state);

 private:
  // (number of blocks of the run, m, n) part of a stacked tensor, and one block of it shaped as in its parameter.
  at::Tensor part(const at::Tensor& stacked, std::span<const Block> run) const;
  static at::Tensor slot(const at::Tensor& stacked, int64_t index, at::IntArrayRef sizes);

  std::vector<Block> blocks_;
  NormPtr norm_;
  Rule rule_;
  Momentum momentum_;
  at::Tensor buffer_;  // (number of blocks, m, n); undefined when the momentum keeps none
  at::Tensor last_radius_;
  double fused_radius_ = -1;  // what a fused step last filled it with
  // What the kernels read, by the first block of a run.
  std::map<const Block*, kernels::PointerTable> parameter_tables_, gradient_tables_;
  kernels::Mirror<float> momentum_weights_;
};

}  // namespace gluon
