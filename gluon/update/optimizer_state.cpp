// What an optimizer remembers, of all ranks.

#include <ATen/ATen.h>

#include <map>

#include "gluon/core/check.h"
#include "gluon/update/optimizer.h"

namespace gluon {

std::vector<LayerRadius> Optimizer::effective_radii() const {
  std::vector<LayerRadius> radii;
  for (const LayerBatch& layers : batches_) {
    const at::Tensor values = layers.last_radius().to(at::kCPU, at::kDouble);
    for (std::size_t i = 0; i < layers.blocks().size(); ++i) {
      radii.push_back({layers.blocks()[i].name, values.data_ptr<double>()[i]});
    }
  }
  for (const AdamW::Entry& entry : adamw_.entries())
    radii.push_back({entry.layer.name, entry.last_learning_rate});
  if (shards_->alone()) return radii;
  std::map<std::string, double> mine;
  for (const LayerRadius& entry : radii) mine[entry.name] = entry.radius;
  std::vector<double> all;
  for (const std::string& name : matrices_) all.push_back(mine.count(name) > 0 ? mine.at(name) : 0);
  const at::Tensor sum = shards_->sum(at::tensor(all, at::kDouble));
  radii.clear();
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    radii.push_back({matrices_[i], sum.data_ptr<double>()[i]});
  return radii;
}

int64_t Optimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const LayerBatch& layers : batches_) bytes += layers.state_bytes();
  for (const AdamW::Entry& entry : adamw_.entries()) bytes += entry.first.nbytes() + entry.second.nbytes();
  return static_cast<int64_t>(bytes);
}

OptimizerState Optimizer::state() const {
  OptimizerState state;
  state.step = step_ - (fused_.bad_block() != nullptr ? 1 : 0);  // a refused step does not count
  for (const LayerBatch& layers : batches_) layers.save(state);
  adamw_.save(state);
  shards_->gather(state.tensors);
  return state;
}

// Of an entry that is not this rank's.
bool Optimizer::belongs_to_another_rank(const std::string& entry) const {
  const std::string layer = entry.substr(entry.find('/') + 1);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].name == layer) return !shards_->owns(i);
  }
  return false;
}

void Optimizer::load_state(const OptimizerState& state) {
  GLUON_CHECK(state.version >= 1 && state.version <= OptimizerState::kVersion, "optimizer state: version ",
              state.version, " is not one of 1..", OptimizerState::kVersion);
  GLUON_CHECK(state.step >= 0, "optimizer state: step must be >= 0, got ", state.step);
  std::map<std::string, std::vector<int64_t>> expected;
  for (const LayerBatch& layers : batches_) layers.list(expected);
  adamw_.list(expected);
  for (const auto& [name, sizes] : expected) {
    const at::Tensor tensor = state.find(name, sizes);
    GLUON_CHECK(!name.starts_with("adamw.steps/") || tensor.item<double>() >= 0, "optimizer state: '", name,
                "' must be >= 0, got ", tensor.item<double>());
  }
  for (const auto& [name, tensor] : state.tensors) {
    GLUON_CHECK(expected.count(name) == 1 || belongs_to_another_rank(name), "optimizer state: '", name,
                "' belongs to no layer of this optimizer");
  }
  for (LayerBatch& layers : batches_) layers.load(state);
  adamw_.load(state);
  fused_.momentum_changed();
  step_ = state.step;
  halfway_ = false;
  reduced_ = false;
}

}  // namespace gluon
