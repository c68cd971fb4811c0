#include "gluon/update/layer_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gluon/core/precision.h"

namespace gluon {
namespace {

constexpr const char* kMomentum = "momentum/";
constexpr const char* kSecond = "normalize.second/";

// The sizes of the parameter with one entry per row of its matrices.
std::vector<int64_t> sizes_of_rows(const Block& block) {
  std::vector<int64_t> sizes = block.layer.parameter.sizes().vec();
  if (matrix_shape(sizes, block.layer.role).cols == 1) return sizes;
  std::fill(block.layer.role == Role::kConv ? sizes.begin() + 1 : sizes.end() - 1, sizes.end(), 1);
  return sizes;
}

// The sizes of a layer's second moments in a state: one per row where the entries of a row share one, which they do not
// in a layer that is cut into columns.
std::vector<int64_t> sizes_of_second(const Block& block, const Normalize& normalize) {
  const bool cut = block.length > 0 && block.dim == -1;
  const bool shared = normalize.state_cols(block.shape.cols) < block.shape.cols;
  return shared && !cut ? sizes_of_rows(block) : block.layer.parameter.sizes().vec();
}

}  // namespace

LayerBatch::LayerBatch(StepPlan::Batch plan, const Rule& rule, const Momentum& momentum)
    : plan_(std::move(plan)), rule_(rule), momentum_(momentum) {
  const auto count = static_cast<int64_t>(blocks().size());
  const MatrixShape& shape = blocks().front().shape;
  const at::Tensor& parameter = blocks().front().layer.parameter;
  const at::TensorOptions options =
      parameter.options().requires_grad(false).dtype(compute_type(parameter.scalar_type()));
  if (rule_.sphere) sphere_ = rule_.sphere->radius(norm(), shape);
  if (momentum_.keeps_buffer()) buffer_ = at::zeros({count, shape.rows, shape.cols}, options);
  if (!rule_.normalize.is_none()) {
    second_ = at::zeros({count, shape.rows, rule_.normalize.state_cols(shape.cols)}, options);
    const auto entries = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
    unit_ = norm().lmo_length(shape.rows, shape.cols) / std::sqrt(entries);
  }
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

std::size_t LayerBatch::state_bytes() const {
  std::size_t bytes = 0;
  for (const at::Tensor& kept : {buffer_, second_}) bytes += kept.defined() ? kept.nbytes() : 0;
  return bytes;
}

std::map<std::string, std::vector<std::vector<int64_t>>> LayerBatch::state_entries() const {
  std::map<std::string, std::vector<std::vector<int64_t>>> entries;
  for (const Block& block : blocks()) {
    const std::vector<int64_t> whole = block.layer.parameter.sizes().vec();
    if (buffer_.defined()) entries[kMomentum + block.layer.name] = {whole};
    if (!second_.defined()) continue;
    // Another split or normalisation may have saved other sizes.
    entries[kSecond + block.layer.name] = {sizes_of_second(block, rule_.normalize), sizes_of_rows(block), whole};
  }
  return entries;
}

void LayerBatch::save(OptimizerState& state, std::string_view only) const {
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    const Block& block = blocks()[i];
    if (!only.empty() && block.layer.name != only) continue;
    const auto copy_to = [&](const std::string& name, at::IntArrayRef sizes, const at::Tensor& stack) {
      at::Tensor& whole = state.tensors[name];
      if (!whole.defined()) whole = at::empty(sizes, stack_options());
      at::Tensor target = block.of(whole);
      const at::Tensor matrix = stack.select(0, static_cast<int64_t>(i));
      target.copy_(matrix.expand({block.shape.rows, target.numel() / block.shape.rows}).reshape(target.sizes()));
    };
    if (buffer_.defined()) copy_to(kMomentum + block.layer.name, block.layer.parameter.sizes(), buffer_);
    if (second_.defined()) copy_to(kSecond + block.layer.name, sizes_of_second(block, rule_.normalize), second_);
  }
}

void LayerBatch::load(const OptimizerState& state) {
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    const Block& block = blocks()[i];
    const auto matrix_of = [&](const std::string& name) {
      const at::Tensor whole = state.tensors.at(name).expand(block.layer.parameter.sizes());
      return block.of(whole).reshape({block.shape.rows, block.shape.cols});
    };
    const auto index = static_cast<int64_t>(i);
    if (buffer_.defined()) buffer_.select(0, index).copy_(matrix_of(kMomentum + block.layer.name));
    if (!second_.defined()) continue;
    second_.select(0, index).copy_(rule_.normalize.state_of(matrix_of(kSecond + block.layer.name)));
  }
}

}  // namespace gluon
