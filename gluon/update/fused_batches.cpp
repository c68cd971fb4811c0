#include "gluon/update/fused_batches.h"

#include <algorithm>

namespace gluon {

void FusedBatches::choose(std::vector<LayerBatch>& batches, int64_t step,
                          const RadiusMultipliers& multipliers) {
  std::vector<LayerBatch*> chosen;
  std::vector<kernels::FusedStack> stacks;
  const QuinticIteration* iteration = nullptr;
  inputs_.clear();
  if (fused_.empty()) {
    for (const LayerBatch& batch : batches) fused_.push_back(batch.fused());
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    LayerBatch& batch = batches[i];
    const std::optional<LayerBatch::Fused>& fused = fused_[i];
    if (!fused) continue;
    // One iteration for all; layers of another device step by themselves.
    if (fused->iteration != nullptr && iteration != nullptr && fused->iteration->name() != iteration->name())
      continue;
    if (stacks.size() == kernels::kMaxFusedStacks) break;
    if (!stacks.empty() && stacks[0].momentum.device() != fused->stack.momentum.device()) continue;
    std::optional<kernels::FusedStep::Inputs> inputs =
        batch.fused_inputs(step, multipliers.of(batch.blocks().front().layer));
    if (!inputs) continue;
    if (fused->iteration != nullptr) iteration = fused->iteration;
    chosen.push_back(&batch);
    stacks.push_back(fused->stack);
    inputs_.push_back(std::move(*inputs));
  }
  if (chosen == members_) return;
  // It may throw, in a capture or for want of memory: members_ must not name what no step moves.
  std::unique_ptr<kernels::FusedStep> made;
  if (!chosen.empty()) {
    made = std::make_unique<kernels::FusedStep>(std::move(stacks), iteration, scratch_bytes_);
  }
  if (step_ && step_->captured()) in_graphs_.push_back(std::move(step_));
  step_ = std::move(made);
  members_ = std::move(chosen);
}

bool FusedBatches::contains(const LayerBatch& batch) const {
  return std::find(members_.begin(), members_.end(), &batch) != members_.end();
}

void FusedBatches::run() {
  if (!step_) return;
  if (!in_graphs_.empty()) step_->momentum_changed();  // by replays it does not know of
  step_->run(inputs_);
}

const Block* FusedBatches::bad_block() const {
  if (!step_) return nullptr;
  const std::optional<kernels::FusedStep::Place> place = step_->verdict();
  return place ? &members_[place->stack]->blocks()[place->matrix] : nullptr;
}

void FusedBatches::momentum_changed() {
  if (!step_) return;
  step_->forget();
  step_->momentum_changed();
}

void FusedBatches::forget() {
  if (step_) step_->forget();
}

}  // namespace gluon
