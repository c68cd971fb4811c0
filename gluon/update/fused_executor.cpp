#include "gluon/update/fused_executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "gluon/kernels/kernels.h"
#include "gluon/update/plain_executor.h"

namespace gluon {
namespace {

using Kind = LmoForm::Kind;

bool is_contiguous_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

// The parameter may be a view into a buffer of the caller's that begins at any of its entries.
bool is_aligned(const at::Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 16 == 0; }

// Why the kernels never move the batch, in a few words; empty if they can.
std::string misfit(const LayerBatch& batch) {
  const at::Tensor& buffer = batch.buffer();
  if (!buffer.defined()) return "its momentum keeps no buffer";
  if (buffer.scalar_type() != at::kFloat) return "it is not float32";
  if (std::string why = missing_kernels(batch.rule(), batch.norm()); !why.empty()) return why;
  if (kernels::step_path(buffer.device()) == kernels::StepPath::kPlain) return kernels::why_not_hopper(buffer.device());
  if (!batch.rule().radius->constant()) return join("its radius is ", batch.rule().radius->name());
  const LmoForm::Kind kind = batch.norm().lmo_form().kind;
  if (kind == Kind::kOther) return join("its norm is ", batch.norm().name());
  if (kind == Kind::kPolar && buffer.size(2) % 8 != 0) {
    return join("it has ", buffer.size(2), " columns, which 8 does not divide");
  }
  return {};
}

// Why the kernels cannot read a block's tensors; null if they can.
const char* unreadable(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!is_contiguous_float(parameter)) return "it is not contiguous float32";
  if (!is_aligned(parameter)) return "its address is not divisible by 16";
  return is_contiguous_float(gradient) ? nullptr : "its gradient is not contiguous";
}

// Nothing when a gradient is missing, or a tensor is not what the kernels can read.
std::optional<kernels::FusedStep::Inputs> inputs_of(const LayerBatch& batch, const StepContext& now) {
  const Rule& rule = batch.rule();
  double radius = rule.radius->constant().value() * now.multipliers.of(batch.blocks().front().layer);
  if (rule.ball) radius = std::min(radius, *rule.ball);
  kernels::FusedStep::Inputs inputs{
      .radius = radius, .beta = batch.momentum().beta(now.step), .decay = batch.decay().weight(now.step)};
  inputs.gradients.reserve(batch.blocks().size());
  inputs.parameters.reserve(batch.blocks().size());
  for (const Block& block : batch.blocks()) {
    if (!block.layer.parameter.grad().defined()) return {};
    const at::Tensor gradient = block.of(block.layer.parameter.grad());
    const at::Tensor parameter = block.of(block.layer.parameter);
    if (unreadable(parameter, gradient) != nullptr) return {};
    inputs.gradients.push_back(gradient.data_ptr());
    inputs.parameters.push_back(parameter.data_ptr());
  }
  return inputs;
}

// What observers see of a batch after the step; the kernels keep no directions, so they are computed once more.
BatchStep observed(const LayerBatch& batch, double radius, int64_t step) {
  BatchStep seen = gather_gradients(batch, batch.blocks(), step);
  seen.momentum = lmo_input(batch, seen);
  seen.direction = device_lmo(batch.norm(), seen.momentum);
  const Normalize& normalize = batch.rule().normalize;
  seen.heading = normalize.is_none() ? seen.direction
                                     : normalize.heading(seen.direction.to(at::kFloat), batch.second(), batch.unit());
  seen.radius = at::full({seen.momentum.size(0)}, radius, batch.stack_options());
  return seen;
}

}  // namespace

at::Tensor device_lmo(const Norm& norm, const at::Tensor& g) {
  const LmoForm form = norm.lmo_form();
  if (form.kind != Kind::kPolar || g.scalar_type() != at::kFloat || g.numel() == 0) return norm.lmo(g);
  const kernels::StepPath path = kernels::step_path(g.device());
  if (path == kernels::StepPath::kHopper) return kernels::polar_lmo(g, form);
  return path == kernels::StepPath::kPortable ? kernels::portable_polar_lmo(g, form) : norm.lmo(g);
}

// Sign layers move in one pass from their gradient to their update, which knows no matrix as a whole.
std::string missing_kernels(const Rule& rule, const Norm& norm) {
  if (norm.lmo_form().kind == Kind::kPolar) return {};
  if (rule.sphere) return join("it stays on a sphere with the norm ", norm.name());
  if (!rule.normalize.is_none())
    return join("its ", norm.name(), " direction is normalized by ", rule.normalize.name());
  return {};
}

FusedExecutor::FusedExecutor(std::span<LayerBatch> batches, int64_t scratch_bytes) : scratch_bytes_(scratch_bytes) {
  std::optional<std::vector<PolarStep>> iteration;
  for (LayerBatch& batch : batches) {
    if (!misfit(batch).empty() || candidates_.size() == kernels::kMaxFusedStacks) continue;
    // One device and one iteration for all.
    if (!candidates_.empty() && candidates_[0]->buffer().device() != batch.buffer().device()) continue;
    const LmoForm form = batch.norm().lmo_form();
    if (form.kind == Kind::kPolar && iteration.value_or(form.steps) != form.steps) continue;
    if (form.kind == Kind::kPolar) iteration = form.steps;
    candidates_.push_back(&batch);
  }
}

std::vector<LayerBatch*> FusedExecutor::select(const StepContext& now) {
  std::vector<LayerBatch*> selected;
  inputs_.clear();
  for (LayerBatch* batch : candidates_) {
    std::optional<kernels::FusedStep::Inputs> inputs = inputs_of(*batch, now);
    if (!inputs) continue;
    selected.push_back(batch);
    inputs_.push_back(std::move(*inputs));
  }
  if (selected != members_) make_step(selected);
  return selected;
}

std::string FusedExecutor::why_not(const LayerBatch& batch) const {
  if (std::string why = misfit(batch); !why.empty()) return why;
  if (std::find(candidates_.begin(), candidates_.end(), &batch) == candidates_.end()) {
    return join("the step is full, or its device or iteration differs from that of layer '",
                candidates_.front()->blocks().front().layer.name, "'");
  }
  for (const Block& block : batch.blocks()) {
    if (!block.layer.parameter.grad().defined()) return join("layer '", block.layer.name, "' has no gradient");
    const char* why = unreadable(block.of(block.layer.parameter), block.of(block.layer.parameter.grad()));
    if (why != nullptr) return why;
  }
  return "it may fit from the next step on";
}

void FusedExecutor::make_step(const std::vector<LayerBatch*>& batches) {
  members_.clear();  // should the next lines run out of memory, there is no step for them
  step_.reset();
  std::vector<kernels::FusedStack> stacks;
  for (const LayerBatch* batch : batches) {
    stacks.push_back({.form = batch->norm().lmo_form(),
                      .decays = !batch->decay().is_none(),
                      .cautious = batch->decay().is_cautious(),
                      .nesterov = !batch->momentum().input_is_buffer(),
                      .momentum = batch->buffer(),
                      .normalization = {.second = batch->second(),
                                        .beta = batch->rule().normalize.beta2(),
                                        .eps = batch->rule().normalize.eps(),
                                        .unit = batch->unit()},
                      .sphere = batch->sphere().value_or(0)});
  }
  if (!stacks.empty()) step_ = std::make_unique<kernels::FusedStep>(std::move(stacks), scratch_bytes_);
  members_ = batches;
}

void FusedExecutor::run(std::span<LayerBatch* const> batches, const StepContext& now) {
  if (batches.empty()) return;
  step_->run(inputs_);
  pending_.clear();
  for (const auto& input : inputs_) pending_.push_back(input.radius);
  if (!now.observe) return;
  for (std::size_t i = 0; i < members_.size(); ++i) now.observe(observed(*members_[i], pending_[i], now.step));
}

const Block* FusedExecutor::bad_block() {
  if (pending_.empty()) return nullptr;
  if (const auto place = step_->verdict()) return &members_[place->stack]->blocks()[place->matrix];
  for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->set_last_radius(pending_[i]);
  pending_.clear();
  return nullptr;
}

void FusedExecutor::forget() { pending_.clear(); }

void FusedExecutor::momentum_changed() {
  forget();
  if (step_) step_->momentum_changed();
}

}  // namespace gluon
