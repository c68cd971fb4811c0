// What an optimizer remembers: the state of all ranks.

#include <ATen/ATen.h>

#include <map>

#include "gluon/core/check.h"
#include "gluon/update/optimizer_parts.h"

namespace gluon {

std::vector<LayerRadius> Optimizer::effective_radii() const {
  Parts& parts = *parts_;
  (void)parts.fused.bad_block();  // radii count once their step has been judged
  std::vector<double> radii(parts.plan.names.size(), 0);
  for (const LayerBatch& batch : parts.batches) {
    const std::vector<double> last = batch.last_radius();
    for (std::size_t i = 0; i < last.size(); ++i) radii[batch.places()[i]] = last[i];
  }
  for (const AdamW::Entry& entry : parts.adamw.entries()) {
    radii[parts.plan.adamw[entry.place].place] = entry.last_learning_rate;
  }
  // Every matrix moves on one rank; the others add 0.
  const at::Tensor sum = parts.owners.sum(at::tensor(radii, at::kDouble));
  std::vector<LayerRadius> named;
  for (std::size_t i = 0; i < radii.size(); ++i) {
    named.push_back({parts.plan.names[i], sum.data_ptr<double>()[i]});
  }
  return named;
}

int64_t Optimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const LayerBatch& batch : parts_->batches) bytes += batch.state_bytes();
  for (const AdamW::Entry& entry : parts_->adamw.entries()) {
    bytes += entry.first.nbytes() + entry.second.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

OptimizerState Optimizer::state() const {
  OptimizerState state;
  state.step = steps_taken();
  for (const LayerBatch& batch : parts_->batches) batch.save(state);
  parts_->adamw.save(state);
  parts_->owners.gather(state.tensors);
  return state;
}

void Optimizer::load_state(const OptimizerState& state) {
  GLUON_CHECK(state.version >= 1 && state.version <= OptimizerState::kVersion, "optimizer state: version ",
              state.version, " is not one of 1..", OptimizerState::kVersion);
  GLUON_CHECK(state.step >= 0, "optimizer state: step must be >= 0, got ", state.step);
  const auto belongs_to_another_rank = [&](const std::string& entry) {
    const std::string name = entry.substr(entry.find('/') + 1);
    for (std::size_t i = 0; i < layers().size(); ++i) {
      if (layers()[i].name == name) return !owns(i);
    }
    return false;
  };
  std::map<std::string, std::vector<int64_t>> expected;
  for (const LayerBatch& batch : parts_->batches) batch.list(expected);
  parts_->adamw.list(expected);
  for (const auto& [name, sizes] : expected) {
    const at::Tensor tensor = state.find(name, sizes);
    GLUON_CHECK(!name.starts_with("adamw.steps/") || tensor.item<double>() >= 0, "optimizer state: '", name,
                "' must be >= 0, got ", tensor.item<double>());
  }
  for (const auto& [name, tensor] : state.tensors) {
    GLUON_CHECK(expected.count(name) == 1 || belongs_to_another_rank(name), "optimizer state: '", name,
                "' belongs to no layer of this optimizer");
  }
  for (LayerBatch& batch : parts_->batches) batch.load(state);
  parts_->adamw.load(state);
  parts_->fused.momentum_changed();
  parts_->next_step = state.step;
  parts_->unfinished = false;
  parts_->owners.cancel_gradients();
}

}  // namespace gluon
