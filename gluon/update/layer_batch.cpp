#include "gluon/update/layer_batch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/kernels/kernels.h"
#include "gluon/lmo/orthogonalize/quintic_iteration.h"

namespace gluon {
namespace {

// On the CPU a run that stays in the cache from its momentum to its update is faster than a large one, as long
// as every thread has a matrix; and the allocator keeps memory of this size instead of faulting it in anew.
constexpr int64_t kCacheBytes = int64_t{16} << 20;

// Momentum and directions of half precision parameters are kept in float32.
at::TensorOptions stack_options(const at::Tensor& parameter) {
  return parameter.options().requires_grad(false).dtype(compute_type(parameter.scalar_type()));
}

// X <- (1 - decay t) X + ...: weight decay, or what keeps X in its ball.
double decay_of(const Rule& rule) { return rule.ball ? 1 / *rule.ball : rule.weight_decay; }

bool all_contiguous_floats(std::span<const at::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  });
}

// Whether the kernels can take the tensors beside float32 `state` on their device.
bool fits_kernels(const at::Tensor& state, std::span<const at::Tensor> tensors) {
  return kernels::available(state) && state.scalar_type() == at::kFloat && all_contiguous_floats(tensors);
}

}  // namespace

LayerBatch::LayerBatch(std::vector<Block> blocks, NormPtr norm, const Rule& rule, const Momentum& momentum)
    : blocks_(std::move(blocks)), norm_(std::move(norm)), rule_(rule), momentum_(momentum) {
  const auto count = static_cast<int64_t>(blocks_.size());
  const MatrixShape& shape = blocks_.front().shape;
  const at::TensorOptions options = stack_options(blocks_.front().layer.parameter);
  if (momentum_.keeps_buffer()) buffer_ = at::zeros({count, shape.rows, shape.cols}, options);
  last_radius_ = at::zeros({count}, options);
}

std::vector<std::span<const Block>> LayerBatch::runs(int64_t scratch_bytes) const {
  const MatrixShape& shape = blocks_.front().shape;
  const int64_t stacks = momentum_.input_is_buffer() ? 1 : 2;  // the direction, and the LMO's input
  const int64_t bytes = shape.rows * shape.cols * stacks * static_cast<int64_t>(last_radius_.element_size());
  int64_t limit = scratch_bytes;
  if (last_radius_.is_cpu()) limit = std::min(limit, std::max(kCacheBytes, at::get_num_threads() * bytes));
  const auto most = static_cast<std::size_t>(std::max<int64_t>(limit / bytes, 1));

  std::vector<std::span<const Block>> runs;
  for (std::size_t first = 0; first < blocks_.size();) {
    std::size_t end = first;
    while (end < blocks_.size() && end - first < most && blocks_[end].layer.parameter.grad().defined()) ++end;
    if (end > first) runs.emplace_back(blocks_.data() + first, end - first);
    first = std::max(end, first + (end == first ? 1 : 0));
  }
  return runs;
}

BatchStep LayerBatch::gather_gradients(std::span<const Block> run, int64_t step) const {
  BatchStep batch{run, norm_.get(), step, {}, {}, {}, {}};
  for (const Block& block : run) batch.gradients.push_back(block.of(block.layer.parameter.grad()));
  return batch;
}

void LayerBatch::accumulate_momentum(BatchStep& batch) {
  const auto count = static_cast<int64_t>(batch.blocks.size());
  const at::Tensor buffer = momentum_.keeps_buffer() ? part(buffer_, batch.blocks) : at::Tensor();
  if (momentum_.input_is_buffer()) {
    batch.momentum = buffer;
  } else {
    const MatrixShape& shape = blocks_.front().shape;
    batch.momentum = at::empty({count, shape.rows, shape.cols}, last_radius_.options());
  }
  if (momentum_.keeps_buffer() && fits_kernels(buffer, batch.gradients)) {
    const double beta = momentum_.beta(batch.step);
    momentum_weights_.send({static_cast<float>(beta), static_cast<float>(1 - beta)}, buffer.options());
    const float* weights = momentum_weights_.data();
    const auto* gradients = gradient_tables_[batch.blocks.data()].of<const float* const>(batch.gradients);
    kernels::accumulate_momentum(buffer, gradients, weights);
    if (momentum_.input_is_buffer()) return;
    // Nesterov's input is one more such step, on a copy.
    batch.momentum.copy_(buffer);
    kernels::accumulate_momentum(batch.momentum, gradients, weights);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& gradient = batch.gradients[static_cast<std::size_t>(i)];
    at::Tensor kept;
    if (buffer.defined()) {
      kept = slot(buffer, i, gradient.sizes());
      momentum_.accumulate(kept, gradient, batch.step);
    }
    if (!momentum_.input_is_buffer()) {
      momentum_.write_input(slot(batch.momentum, i, gradient.sizes()), kept, gradient, batch.step);
    }
  }
}

void LayerBatch::choose_radius(BatchStep& batch, double multiplier) {
  const at::Tensor radius = rule_.radius->radius(batch);
  GLUON_CHECK(radius.dim() == 1 && radius.size(0) == batch.momentum.size(0), "radius rule ",
              rule_.radius->name(), ": expected one radius per matrix, [", batch.momentum.size(0), "], got ",
              radius.sizes());
  batch.radius = radius * multiplier;
  if (rule_.ball) batch.radius.clamp_max_(*rule_.ball);  // a longer step would leave the ball
  part(last_radius_, batch.blocks).copy_(batch.radius);
  fused_radius_ = -1;
}

void LayerBatch::move_parameters(const BatchStep& batch) {
  const double decay = decay_of(rule_);
  std::vector<at::Tensor> parameters;
  for (const Block& block : batch.blocks) parameters.push_back(block.of(block.layer.parameter));
  if (fits_kernels(batch.radius, parameters)) {
    float* const* table = parameter_tables_[batch.blocks.data()].of<float* const>(parameters);
    kernels::update_parameters(table, batch.direction, batch.radius, decay);
    return;
  }
  // A half precision direction is the kernels' own; half precision parameters are moved in the radius's type, too.
  const at::Tensor directions = batch.direction.to(batch.radius.scalar_type());
  at::Tensor shrink;
  if (decay > 0) shrink = 1 - batch.radius * decay;
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    at::Tensor parameter = parameters[i];
    const at::Tensor direction = slot(directions, index, parameter.sizes());
    if (parameter.scalar_type() != direction.scalar_type()) {
      // In half precision the shrinkage alone would round away; both parts together are rounded once.
      const at::Tensor wide = parameter.to(direction.scalar_type());
      parameter.copy_((decay > 0 ? wide * shrink[index] : wide).addcmul_(direction, batch.radius[index]));
      continue;
    }
    if (decay > 0) parameter.mul_(shrink[index]);
    parameter.addcmul_(direction, batch.radius[index]);
  }
}

std::optional<LayerBatch::Fused> LayerBatch::fused() const {
  if (!momentum_.keeps_buffer() || !rule_.radius->constant() || !kernels::available(buffer_)) return {};
  std::vector<at::Tensor> parameters;
  for (const Block& block : blocks_) parameters.push_back(block.of(block.layer.parameter));
  if (!fits_kernels(buffer_, parameters)) return {};
  Fused fused{
      .stack = {.decay = decay_of(rule_), .nesterov = !momentum_.input_is_buffer(), .momentum = buffer_}};
  if (const std::optional<double> factor = norm_->sign_factor()) {
    fused.stack.direction = kernels::FusedStack::Direction::kSign;
    fused.stack.factor = *factor;
    return fused;
  }
  const std::optional<Norm::PolarStep> polar = norm_->polar_step();
  if (!polar || buffer_.size(2) % 8 != 0) return {};
  fused.iteration = dynamic_cast<const QuinticIteration*>(polar->orthogonalizer);
  if (fused.iteration == nullptr || !fused.iteration->suits_kernels()) return {};
  fused.stack.factor = polar->factor;
  return fused;
}

std::optional<kernels::FusedStep::Inputs> LayerBatch::fused_inputs(int64_t step, double multiplier) {
  double radius = rule_.radius->constant().value() * multiplier;
  if (rule_.ball) radius = std::min(radius, *rule_.ball);
  kernels::FusedStep::Inputs inputs{.radius = radius, .beta = momentum_.beta(step)};
  inputs.gradients.reserve(blocks_.size());
  inputs.parameters.reserve(blocks_.size());
  for (const Block& block : blocks_) {
    const at::Tensor& gradient = block.layer.parameter.grad();
    if (!gradient.defined()) return {};
    const at::Tensor parts[] = {block.of(gradient), block.of(block.layer.parameter)};
    // A parameter may be a view into a buffer of the caller's, at any of its entries.
    const bool aligned = reinterpret_cast<std::uintptr_t>(parts[1].data_ptr()) % 16 == 0;
    if (!aligned || !all_contiguous_floats(parts)) return {};
    inputs.gradients.push_back(parts[0].data_ptr());
    inputs.parameters.push_back(parts[1].data_ptr());
  }
  // In a capture another radius is refused later, and nothing would be filled.
  if (radius != fused_radius_ && !kernels::is_captured(last_radius_.device())) {
    last_radius_.fill_(fused_radius_ = radius);
  }
  return inputs;
}

BatchStep LayerBatch::fused_batch(int64_t step) const {
  BatchStep batch = gather_gradients(blocks_, step);
  batch.momentum = buffer_;
  if (!momentum_.input_is_buffer()) {
    batch.momentum = at::empty_like(buffer_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const at::Tensor& gradient = batch.gradients[i];
      const auto index = static_cast<int64_t>(i);
      momentum_.write_input(slot(batch.momentum, index, gradient.sizes()),
                            slot(buffer_, index, gradient.sizes()), gradient, step);
    }
  }
  batch.direction = norm_->step_direction(batch.momentum);
  batch.radius = last_radius_;
  return batch;
}

void LayerBatch::list(std::map<std::string, std::vector<int64_t>>& entries) const {
  if (!buffer_.defined()) return;
  for (const Block& block : blocks_) {
    entries["momentum/" + block.layer.name] = block.layer.parameter.sizes().vec();
  }
}

void LayerBatch::save(OptimizerState& state) const {
  if (!buffer_.defined()) return;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Layer& layer = blocks_[i].layer;
    at::Tensor& whole = state.tensors["momentum/" + layer.name];
    if (!whole.defined()) whole = at::empty(layer.parameter.sizes(), buffer_.options());
    at::Tensor target = blocks_[i].of(whole);
    target.copy_(slot(buffer_, static_cast<int64_t>(i), target.sizes()));
  }
}

void LayerBatch::load(const OptimizerState& state) {
  if (!buffer_.defined()) return;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Layer& layer = blocks_[i].layer;
    const at::Tensor source = blocks_[i].of(state.find("momentum/" + layer.name, layer.parameter.sizes()));
    slot(buffer_, static_cast<int64_t>(i), source.sizes()).copy_(source);
  }
}

at::Tensor LayerBatch::part(const at::Tensor& stacked, std::span<const Block> run) const {
  return stacked.narrow(0, run.data() - blocks_.data(), static_cast<int64_t>(run.size()));
}

at::Tensor LayerBatch::slot(const at::Tensor& stacked, int64_t index, at::IntArrayRef sizes) {
  return stacked.select(0, index).view(sizes);
}

}  // namespace gluon
