#include "gluon/update/layer_batch.h"

#include <ATen/ATen.h>

#include <utility>

#include "gluon/core/precision.h"

namespace gluon {

LayerBatch::LayerBatch(StepPlan::Batch plan, const Rule& rule, const Momentum& momentum)
    : plan_(std::move(plan)), rule_(rule), momentum_(momentum) {
  const auto count = static_cast<int64_t>(blocks().size());
  const MatrixShape& shape = blocks().front().shape;
  const at::Tensor& parameter = blocks().front().layer.parameter;
  const at::TensorOptions options =
      parameter.options().requires_grad(false).dtype(compute_type(parameter.scalar_type()));
  if (rule_.sphere) sphere_ = rule_.sphere->radius(norm(), shape);
  if (momentum_.keeps_buffer()) buffer_ = at::zeros({count, shape.rows, shape.cols}, options);
  last_radius_ = at::zeros({count}, options);
}

at::Tensor LayerBatch::part(const at::Tensor& stacked, std::span<const Block> run) const {
  return stacked.narrow(0, run.data() - blocks().data(), static_cast<int64_t>(run.size()));
}

std::vector<double> LayerBatch::last_radius() const {
  if (uniform_radius_) return std::vector<double>(blocks().size(), *uniform_radius_);
  const at::Tensor host = last_radius_.to(at::kCPU, at::kDouble);
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

void LayerBatch::set_last_radius(std::span<const Block> run, const at::Tensor& radius) {
  if (const auto uniform = std::exchange(uniform_radius_, std::nullopt)) last_radius_.fill_(*uniform);
  part(last_radius_, run).copy_(radius);
}

void LayerBatch::save(OptimizerState& state, std::string_view only) const {
  if (!buffer_.defined()) return;
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    const Layer& layer = blocks()[i].layer;
    if (!only.empty() && layer.name != only) continue;
    at::Tensor& whole = state.tensors["momentum/" + layer.name];
    if (!whole.defined()) whole = at::empty(layer.parameter.sizes(), buffer_.options());
    at::Tensor target = blocks()[i].of(whole);
    target.copy_(stacked_block(buffer_, i, target.sizes()));
  }
}

void LayerBatch::load(const OptimizerState& state) {
  if (!buffer_.defined()) return;
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    const Layer& layer = blocks()[i].layer;
    const at::Tensor source = blocks()[i].of(state.find("momentum/" + layer.name, layer.parameter.sizes()));
    stacked_block(buffer_, i, source.sizes()).copy_(source);
  }
}

}  // namespace gluon
