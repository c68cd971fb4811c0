#include "gluon/update/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"

namespace gluon {
namespace {

// The nearest number that float32 has: a product of rate and decay may lie beyond it. Such a step diverges, which the
// next gradient shows.
double in_float(double x) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::clamp(x, -kLargest, kLargest);
}

}  // namespace

void AdamWOptions::validate() const {
  GLUON_CHECK(beta1 >= 0 && beta1 < 1, "AdamW: beta1 must be in [0, 1), got ", beta1);
  GLUON_CHECK(beta2 >= 0 && beta2 < 1, "AdamW: beta2 must be in [0, 1), got ", beta2);
  GLUON_CHECK(std::isfinite(eps) && eps > 0, "AdamW: eps must be > 0 and finite, got ", eps);
  GLUON_CHECK(std::isfinite(clip) && clip >= 0, "AdamW: clip must be >= 0 and finite, got ", clip);
}

AdamW::AdamW(const AdamWOptions& options) : options_(options) { options_.validate(); }

void AdamW::add_layer(const Layer& layer, double learning_rate, const Decay& decay) {
  const at::Tensor& parameter = layer.parameter;
  const at::Tensor zeros = at::zeros(
      parameter.sizes(), parameter.options().requires_grad(false).dtype(compute_type(parameter.scalar_type())));
  entries_.push_back({layer, learning_rate, decay, zeros, zeros.clone(), layers_});
  add_other_ranks_layer(layer);
}

void AdamW::add_other_ranks_layer(const Layer& layer) {
  if (layers_++ == 0) device_ = layer.parameter.device();
}

at::Tensor AdamW::clip_factor(const Sum& over_ranks) const {
  if (options_.clip == 0 || layers_ == 0) return {};
  // Every rank fills in its own and adds zeros: the sum, and so the factor, is the same on any number of ranks.
  const at::Tensor zero = at::zeros({}, device_);
  std::vector<at::Tensor> norms(layers_, zero);
  for (const Entry& entry : entries_) {
    const at::Tensor& gradient = entry.layer.parameter.grad();
    if (!gradient.defined()) continue;
    norms[entry.place] = gradient.to(entry.first.scalar_type()).norm().to(zero.options());
  }
  const at::Tensor all = at::stack(norms).to(at::kDouble);
  return (options_.clip / ((over_ranks ? over_ranks(all) : all).norm() + 1e-6)).clamp_max_(1);
}

void AdamW::step(const StepContext& now, const Sum& over_ranks) {
  const at::Tensor factor = clip_factor(over_ranks);
  for (Entry& entry : entries_) {
    at::Tensor parameter = entry.layer.parameter;
    if (!parameter.grad().defined()) continue;
    at::Tensor gradient = parameter.grad().to(entry.first.scalar_type());
    if (factor.defined()) gradient = gradient * factor.to(gradient.options());
    const auto j = static_cast<double>(++entry.steps);
    const double rate = entry.last_learning_rate = entry.learning_rate * now.multipliers.of(entry.layer);
    entry.first.lerp_(gradient, 1 - options_.beta1);
    entry.second.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
    const double first_correction = 1 - std::pow(options_.beta1, j);
    const double second_correction = 1 - std::pow(options_.beta2, j);
    at::Tensor ratio = entry.second.sqrt().div_(std::sqrt(second_correction)).add_(options_.eps);
    at::div_out(ratio, entry.first, ratio);
    // Shrunk and moved in the precision of the state, rounded once.
    const at::Tensor wide = parameter.to(ratio.scalar_type());
    if (!entry.decay.is_none()) {
      const at::Tensor keep = at::full({}, in_float(1 - rate * entry.decay.weight(now.step)), wide.options());
      entry.decay.shrink(wide, entry.decay.is_cautious() ? entry.first.neg() : at::Tensor(), keep);
    }
    wide.add_(ratio, in_float(-rate / first_correction));
    if (!wide.is_same(parameter)) parameter.copy_(wide);
  }
}

void AdamW::save(OptimizerState& state, std::string_view only) const {
  for (const Entry& entry : entries_) {
    if (!only.empty() && entry.layer.name != only) continue;
    state.tensors["adamw.first/" + entry.layer.name] = entry.first.clone();
    state.tensors["adamw.second/" + entry.layer.name] = entry.second.clone();
    state.tensors["adamw.steps/" + entry.layer.name] = at::scalar_tensor(entry.steps, at::kLong);
  }
}

void AdamW::load(const OptimizerState& state) {
  for (Entry& entry : entries_) {
    const at::IntArrayRef sizes = entry.layer.parameter.sizes();
    entry.first.copy_(state.find("adamw.first/" + entry.layer.name, sizes));
    entry.second.copy_(state.find("adamw.second/" + entry.layer.name, sizes));
    entry.steps = state.find("adamw.steps/" + entry.layer.name, {}).item<int64_t>();
  }
}

}  // namespace gluon
