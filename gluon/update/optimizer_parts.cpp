#include "gluon/update/optimizer_parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"

namespace gluon {
namespace {

const std::vector<Layer>& checked(const std::vector<Layer>& layers) {
  GLUON_CHECK(!layers.empty(), "Optimizer: expected at least one layer, got none");
  std::set<std::string> names;
  std::map<const void*, std::string> seen;
  for (const auto& [name, parameter, role, group] : layers) {
    GLUON_CHECK(names.insert(name).second, "Optimizer: two layers are called '", name, "'");
    GLUON_CHECK(parameter.defined(), "Optimizer: layer '", name, "' has no parameter");
    GLUON_CHECK(parameter.layout() == at::kStrided && at::isFloatingType(parameter.scalar_type()), "Optimizer: layer '",
                name, "' must be a dense floating point tensor, got ", parameter.scalar_type(), " ",
                parameter.layout());
    GLUON_CHECK(parameter.numel() > 0, "Optimizer: layer '", name, "' has no entries, shape ", parameter.sizes());
    const auto [other, fresh] = seen.emplace(parameter.unsafeGetTensorImpl(), name);
    GLUON_CHECK(fresh, "Optimizer: layers '", other->second, "' and '", name, "' share one parameter; list it once");
  }
  return layers;
}

OptimizerOptions checked(OptimizerOptions options) {
  options.validate();
  if (!options.collective) options.collective = make_collective("single", {});
  return options;
}

void check_ball(const Rule& rule) {
  const auto t = rule.radius->constant();
  GLUON_CHECK(!rule.ball || !t || *t <= *rule.ball, "Optimizer: radius ", t.value_or(0), " of rule '", rule.pattern,
              "' must not exceed its ball ", rule.ball.value_or(0));
}

std::vector<LayerBatch> batches_of(const StepPlan& plan, const Geometry& geometry, const Momentum& momentum, int rank) {
  std::vector<LayerBatch> batches;
  for (const StepPlan::Batch& batch : plan.batches) {
    const Rule& rule = geometry.rules()[batch.rule];
    check_ball(rule);
    if (batch.owner == rank) batches.emplace_back(batch, rule, momentum);
  }
  return batches;
}

// One flag per tensor, on the device of the first: the extremes are finite exactly when every entry is.
at::Tensor all_finite(const std::vector<at::Tensor>& tensors) {
  const at::Device device = tensors[0].device();
  const bool alike = device.is_cuda() && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
                       return tensor.device() == device && tensor.scalar_type() == tensors[0].scalar_type();
                     });
  if (alike) {  // all in a few launches
    return at::isfinite(at::stack(at::_foreach_norm(tensors, std::numeric_limits<double>::infinity())));
  }
  std::vector<at::Tensor> finite;
  for (const at::Tensor& tensor : tensors) {
    // LibTorch 1.13 has no aminmax of float16 on the CPU.
    const bool half = tensor.scalar_type() == at::kHalf && tensor.is_cpu();
    const auto [least, largest] = at::aminmax(half ? tensor.to(at::kFloat) : tensor);
    finite.push_back(at::isfinite(least).logical_and_(at::isfinite(largest)).to(device));
  }
  return at::stack(finite);
}

}  // namespace

void OptimizerOptions::validate() const {
  GLUON_CHECK(scratch_bytes >= 1, "OptimizerOptions: scratch_bytes must be >= 1, got ", scratch_bytes);
  adamw.validate();
}

Optimizer::Parts::Parts(std::vector<Layer> all_layers, Geometry rules, OptimizerOptions given)
    : layers(std::move(all_layers)),
      geometry(std::move(rules)),
      options(checked(std::move(given))),
      momentum(options.momentum.value_or(geometry.momentum()).over(geometry.momentum())),
      plan(route(checked(layers), geometry,
                 {.orthogonalizer = options.orthogonalizer, .ranks = options.collective->size()})),
      owners(layers, plan.owners, plan.phases(), options.collective, options.reduction),
      batches(batches_of(plan, geometry, momentum, options.collective->rank())),
      plain(options.scratch_bytes),
      fused(batches, options.scratch_bytes),
      adamw(options.adamw) {
  for (const Layer& layer : layers) {
    const at::Tensor& parameter = layer.parameter;
    expected.push_back({parameter.sizes().vec(), parameter.scalar_type(), parameter.device()});
  }
  for (const StepPlan::AdamWLayer& entry : plan.adamw) {
    const Layer& layer = layers[entry.layer];
    const Rule& rule = geometry.rules()[plan.rules[entry.layer]];
    const auto rate = rule.radius->constant();
    GLUON_CHECK(rate, "Optimizer: AdamW needs a constant learning rate for layer '", layer.name, "', got ",
                rule.radius->name());
    if (owners.owns(entry.layer)) {
      adamw.add_layer(layer, *rate, rule.decay);
    } else {
      adamw.add_other_ranks_layer(layer);
    }
  }
}

void Optimizer::Parts::check_layers() const {
  GLUON_CHECK(!unfinished, "Optimizer: an earlier step failed halfway; load a state before the next one");
  GLUON_CHECK(!kernels::is_captured(layers.front().parameter.device()),
              "Optimizer: step() cannot be part of a CUDA graph that is being captured; on a GPU it is a graph "
              "of its own, so call it after the capture");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& [name, parameter, role, group] = layers[i];
    const auto& [sizes, dtype, device] = expected[i];
    GLUON_CHECK(
        parameter.sizes() == at::IntArrayRef(sizes) && parameter.scalar_type() == dtype && parameter.device() == device,
        "Optimizer: layer '", name, "' was ", at::IntArrayRef(sizes), " ", dtype, " on ", device,
        " at the start and is now ", parameter.sizes(), " ", parameter.scalar_type(), " on ", parameter.device());
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    GLUON_CHECK(gradient.layout() == at::kStrided && gradient.sizes() == parameter.sizes() &&
                    gradient.scalar_type() == dtype && gradient.device() == device,
                "Optimizer: layer '", name, "' needs a gradient like itself, Strided ", dtype, " ", parameter.sizes(),
                " on ", device, ", got ", gradient.layout(), " ", gradient.scalar_type(), " ", gradient.sizes(), " on ",
                gradient.device());
  }
}

void Optimizer::Parts::warn_of_missing_gradients() {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string& name = layers[i].name;
    if (!owners.owns(i) || layers[i].parameter.grad().defined() || !reported.insert(name).second) continue;
    warn(join("layer '", name, "' has no gradient; it is skipped"));
  }
}

StepContext Optimizer::Parts::context() {
  StepContext now{.step = next_step, .multipliers = radius_multipliers};
  now.multipliers.all *= options.schedule.multiplier(next_step);
  now.moved = [this](const LayerBatch& batch) { owners.send_parameters(batch.phase() + 1); };
  const auto watches = [this](const auto& observer) { return observer->watches(next_step); };
  if (std::none_of(observers.begin(), observers.end(), watches)) return now;
  now.observe = [this, watches](const BatchStep& batch) {
    try {
      for (const auto& observer : observers) {
        if (watches(observer)) observer->after_step(batch);
      }
    } catch (const std::exception&) {
      rethrow_with_layer(join("observer of norm ", batch.norm ? batch.norm->name() : "adamw"), batch.blocks.front());
    }
  };
  return now;
}

Optimizer::Parts::Work Optimizer::Parts::divide(const StepContext& now) {
  Work work{.fused = fused.select(now)};
  for (LayerBatch& batch : batches) {
    const bool taken = std::find(work.fused.begin(), work.fused.end(), &batch) != work.fused.end();
    if (!taken) work.plain.push_back(&batch);
  }
  work.judged_on_device = owners.alone() && work.plain.empty() && adamw.entries().empty() && !now.observe;
  return work;
}

bool Optimizer::Parts::accepts_gradients() {
  // One transfer for all gradients of this rank.
  std::vector<at::Tensor> gradients;
  std::vector<int64_t> places;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor& gradient = layers[i].parameter.grad();
    if (!gradient.defined() || !owners.owns(i)) continue;
    gradients.push_back(gradient);
    places.push_back(static_cast<int64_t>(i));
  }
  at::Tensor bad = at::zeros({static_cast<int64_t>(layers.size())}, at::kInt);
  if (!gradients.empty()) {
    bad.index_copy_(0, at::tensor(places), all_finite(gradients).cpu().logical_not().to(at::kInt));
  }
  bad = owners.sum(bad);
  if (bad.max().item<int>() == 0) return true;
  refuse_step(layers[static_cast<std::size_t>(bad.argmax().item<int64_t>())].name);
  return false;
}

void Optimizer::Parts::refuse_step(const std::string& layer) {
  if (options.non_finite == NonFinite::kError) {
    throw NonFiniteGradient(join("Optimizer: the gradient of layer '", layer, "' holds NaN or Inf at step ", next_step,
                                 "; nothing was updated"));
  }
  ++skipped;
}

// Says once which layers on a GPU take a path slower than that of a Hopper GPU's kernels, and why.
void Optimizer::Parts::warn_of_slow_path(const Work& work) {
  if (std::exchange(path_reported, true)) return;
  for (const LayerBatch* batch : work.plain) {
    const Layer& layer = batch->blocks().front().layer;
    const at::Device device = layer.parameter.device();
    if (!device.is_cuda()) continue;
    if (kernels::step_path(device) == kernels::StepPath::kPlain) {
      warn("the step runs without the GPU kernels, which is slower: " + kernels::why_not_hopper(device));
      return;
    }
    warn(join("layer '", layer.name, "' and those like it do not fit the GPU's fused step (", fused.why_not(*batch),
              "); they take a slower path"));
  }
  if (work.fused.empty()) return;
  const at::Device device = work.fused.front()->buffer().device();
  if (kernels::step_path(device) == kernels::StepPath::kPortable) {
    warn("the GPU's fused step runs on products of cuBLAS, which is slower than on Hopper's kernels: " +
         kernels::why_not_hopper(device));
  }
  if (!adamw.entries().empty()) {
    warn("AdamW's layers are not part of the GPU's fused step: each step waits for the device");
  }
}

void Optimizer::Parts::move_adamw_layers(const StepContext& now) {
  adamw.step(now, [this](at::Tensor norms) { return owners.sum(std::move(norms)); });
  if (!now.observe) return;
  for (const AdamW::Entry& entry : adamw.entries()) {
    if (!entry.layer.parameter.grad().defined()) continue;
    const std::vector<Block> blocks = split_blocks(entry.layer, "");
    BatchStep batch{.blocks = blocks, .step = now.step, .momentum = as_matrices(entry.first, entry.layer.role)};
    for (const Block& block : blocks) batch.gradients.push_back(block.of(entry.layer.parameter.grad()));
    batch.radius = at::full({batch.momentum.size(0)}, entry.last_learning_rate, batch.momentum.options());
    now.observe(batch);
  }
}

void Optimizer::Parts::warn(const std::string& sentence) const {
  if (options.warn) {
    options.warn(sentence);
  } else {
    std::clog << "gluon: " << sentence << '\n';
  }
}

}  // namespace gluon
