// LayerBatch: the matrices of one batch of the plan with what the optimizer keeps for them: their stacked momentum, the
// second moments of their directions and the radius of their last step.

#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gluon/geometry/geometry.h"
#include "gluon/momentum/momentum.h"
#include "gluon/plan/step_plan.h"
#include "gluon/update/state.h"

namespace gluon {

class LayerBatch {
 public:
  LayerBatch(StepPlan::Batch plan, const Rule& rule, const Momentum& momentum);

  const std::vector<Block>& blocks() const { return plan_.blocks; }
  const std::vector<std::size_t>& places() const { return plan_.places; }  // of the blocks, into StepPlan::names
  int64_t phase() const { return plan_.phase; }
  const Norm& norm() const { return *plan_.norm; }
  const Rule& rule() const { return rule_; }
  const Momentum& momentum() const { return momentum_; }

  /// Uses another beta from the next step on; see Momentum::with_beta().
  void set_beta(double beta) { momentum_ = momentum_.with_beta(beta); }

  /// The rule's decay, or what keeps X in its ball.
  Decay decay() const { return rule_.ball ? Decay(1 / *rule_.ball) : rule_.decay; }

  /// R of the sphere |X|_F = R that the matrices stay on, if they do; see update/sphere_step.h.
  std::optional<double> sphere() const { return sphere_; }

  /// (number of blocks, m, n); undefined when the momentum keeps none.
  const at::Tensor& buffer() const { return buffer_; }

  /// Of normalize/normalize.h: v, (number of blocks, m, 1 or n), and u; undefined where the rule normalises nothing.
  const at::Tensor& second() const { return second_; }
  double unit() const { return unit_; }

  /// dtype and device of stacked tensors: half precision parameters have float32 momentum and directions.
  at::TensorOptions stack_options() const { return last_radius_.options(); }

  /// The blocks of `run`, a part of blocks(), in a tensor stacked like buffer().
  at::Tensor part(const at::Tensor& stacked, std::span<const Block> run) const;

  /// The radius each block moved by in its last step; 0 before its first.
  std::vector<double> last_radius() const;
  void set_last_radius(std::span<const Block> run, const at::Tensor& radius);
  void set_last_radius(double radius) { uniform_radius_ = radius; }

  std::size_t state_bytes() const;

  /// What save() writes: the names of entries, each with the sizes that load() takes, those it is saved with first.
  std::map<std::string, std::vector<std::vector<int64_t>>> state_entries() const;

  /// Copies to and from the entries "momentum/<layer>" and "normalize.second/<layer>" of a state; `only` limits save() to
  /// the layer of this name.
  void save(OptimizerState& state, std::string_view only = {}) const;
  void load(const OptimizerState& state);

 private:
  StepPlan::Batch plan_;
  Rule rule_;
  Momentum momentum_;
  std::optional<double> sphere_;
  at::Tensor buffer_;
  at::Tensor second_;
  double unit_ = 1;
  at::Tensor last_radius_;                // (number of blocks), on the layers' device
  std::optional<double> uniform_radius_;  // stands for last_radius_ when all blocks moved by the same
};

}  // namespace gluon
