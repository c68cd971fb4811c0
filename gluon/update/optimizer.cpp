#include "gluon/update/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <tuple>

#include "gluon/core/check.h"
#include "gluon/distributed/sharding.h"
#include "gluon/kernels/kernels.h"

namespace gluon {
namespace {

void check_parameters(std::span<const Layer> layers) {
  GLUON_CHECK(!layers.empty(), "Optimizer: expected at least one layer, got none");
  std::set<std::string> names;
  std::map<const void*, std::string> seen;
  for (const auto& [name, parameter, role, group] : layers) {
    GLUON_CHECK(names.insert(name).second, "Optimizer: two layers are called '", name, "'");
    GLUON_CHECK(parameter.defined(), "Optimizer: layer '", name, "' has no parameter");
    GLUON_CHECK(parameter.layout() == at::kStrided && at::isFloatingType(parameter.scalar_type()),
                "Optimizer: layer '", name, "' must be a dense floating point tensor, got ",
                parameter.scalar_type(), " ", parameter.layout());
    GLUON_CHECK(parameter.numel() > 0, "Optimizer: layer '", name, "' has no entries, shape ",
                parameter.sizes());
    const auto [other, fresh] = seen.emplace(parameter.unsafeGetTensorImpl(), name);
    GLUON_CHECK(fresh, "Optimizer: layers '", other->second, "' and '", name,
                "' share one parameter; list it once");
  }
}

void check_ball(const Rule& rule) {
  const auto t = rule.radius->constant();
  GLUON_CHECK(!rule.ball || !t || *t <= *rule.ball, "Optimizer: radius ", t.value_or(0), " of rule '",
              rule.pattern, "' must not exceed its ball ", rule.ball.value_or(0));
}

void check_multiplier(double multiplier) {
  GLUON_CHECK(std::isfinite(multiplier) && multiplier >= 0,
              "Optimizer: the radius multiplier must be >= 0, got ", multiplier);
}

// What a step in a graph would do again as it was, instead of as it is.
void check_captured(const Geometry& geometry, const OptimizerOptions& options, const Momentum& momentum) {
  bool constant = options.schedule.name() == Schedule().name() &&
                  (!momentum.keeps_buffer() || momentum.constant_beta().has_value());
  for (const Rule& rule : geometry.rules()) constant = constant && rule.radius->constant().has_value();
  GLUON_CHECK(
      constant,
      "Optimizer: a step in a CUDA graph needs constant radii, a constant schedule and a constant beta");
}

// One flag per tensor, on the device of the first.
at::Tensor all_finite(const std::vector<at::Tensor>& tensors) {
  const at::Device device = tensors[0].device();
  const bool together =
      device.is_cuda() && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.device() == device && tensor.scalar_type() == tensors[0].scalar_type();
      });
  // All in a few launches.
  if (together) {
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

// What observers see of a layer that AdamW moved.
BatchStep adamw_batch(const AdamW::Entry& entry, std::span<const Block> blocks, int64_t step) {
  BatchStep batch{blocks, nullptr, step, {}, as_matrices(entry.first, entry.layer.role), {}, {}};
  for (const Block& block : blocks) batch.gradients.push_back(block.of(entry.layer.parameter.grad()));
  batch.radius = at::full({batch.momentum.size(0)}, entry.last_learning_rate, batch.momentum.options());
  return batch;
}

}  // namespace

void OptimizerOptions::validate() const {
  GLUON_CHECK(scratch_bytes >= 1, "OptimizerOptions: scratch_bytes must be >= 1, got ", scratch_bytes);
  adamw.validate();
}

Optimizer::Optimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options)
    : layers_(std::move(layers)),
      geometry_(std::move(geometry)),
      options_(std::move(options)),
      momentum_(options_.momentum.value_or(geometry_.momentum()).over(geometry_.momentum())),
      fused_(options_.scratch_bytes),
      adamw_(options_.adamw) {
  options_.validate();
  check_parameters(layers_);
  for (const Layer& layer : layers_) {
    const at::Tensor& parameter = layer.parameter;
    expected_.push_back({parameter.sizes().vec(), parameter.scalar_type(), parameter.device()});
  }
  if (!options_.collective) options_.collective = make_collective("single", {});
  const std::vector<std::size_t> assignment = geometry_.assign(layers_);
  const int ranks = options_.collective->size();
  shards_.emplace(layers_, assign_layers(layers_, geometry_, assignment, ranks), options_.collective,
                  options_.reduction);
  add_layer_batches(assignment);
}

void Optimizer::add_layer_batches(const std::vector<std::size_t>& assignment) {
  // Blocks that are alike step together; the key is the order of the batches, so that runs repeat exactly.
  using Key = std::tuple<std::size_t, int64_t, int64_t, int64_t, std::string, at::ScalarType, std::string>;
  struct Group {
    NormPtr norm;
    std::vector<Block> blocks;
    std::vector<std::size_t> layers;
  };
  std::vector<std::map<Key, Group>> owners(static_cast<std::size_t>(options_.collective->size()));
  std::vector<int64_t> phases(layers_.size(),
                              std::numeric_limits<int64_t>::max() - 1);  // AdamW's: the last one
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Rule& rule = geometry_.rules()[assignment[i]];
    if (rule.norm.is_adamw()) {
      const auto rate = rule.radius->constant();
      GLUON_CHECK(rate, "Optimizer: AdamW needs a constant learning rate for layer '", layer.name, "', got ",
                  rule.radius->name());
      matrices_.push_back(layer.name);
      if (shards_->owns(i)) {
        adamw_.add_layer(layer, *rate, rule.weight_decay);
      } else {
        adamw_.add_other_ranks_layer(layer);
      }
      continue;
    }
    check_ball(rule);
    for (Block& block : split_blocks(layer, rule.split)) {
      NormPtr norm = rule.norm.resolve(block.shape, options_.orthogonalizer);
      Key key{assignment[i],
              layer.group,
              block.shape.rows,
              block.shape.cols,
              norm->name(),
              layer.parameter.scalar_type(),
              layer.parameter.device().str()};
      Group& group = owners[static_cast<std::size_t>(shards_->owner(i))][key];
      if (!group.norm) group.norm = std::move(norm);
      matrices_.push_back(block.name);
      group.blocks.push_back(std::move(block));
      group.layers.push_back(i);
    }
  }
  // Other ranks' batches are known, too: which of them ends a layer says when it comes.
  for (const auto& groups : owners) {
    int64_t phase = 0;
    for (const auto& [key, group] : groups) {
      for (const std::size_t i : group.layers) phases[i] = phase;
      ++phase;
    }
  }
  shards_->set_phases(phases);
  for (auto& [key, group] : owners[static_cast<std::size_t>(shards_->rank())]) {
    batches_.emplace_back(std::move(group.blocks), group.norm, geometry_.rules()[std::get<0>(key)],
                          momentum_);
  }
}

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  wait();
  check_layers();
  const bool captured = kernels::is_captured(layers_.front().parameter.device());
  if (captured) check_captured(geometry_, options_, momentum_);
  const bool watched = std::any_of(observers_.begin(), observers_.end(),
                                   [&](const auto& observer) { return observer->watches(step_); });
  const bool exchanges = !shards_->alone() || options_.reduction.exact;
  GLUON_CHECK(
      !captured || (!watched && adamw_.entries().empty() && !exchanges),
      "Optimizer: a step in a CUDA graph takes no observer, no other ranks, no exact sums and no layer of "
      "AdamW's, which counts its steps");
  if (!reduced_) reduce_gradients();
  reduced_ = false;
  report_missing_gradients();
  RadiusMultipliers multipliers = radius_multipliers_;
  multipliers.all *= options_.schedule.multiplier(step_);
  fused_.choose(batches_, step_, multipliers);
  // The fused step judges its gradients itself, those of one rank.
  const bool alone =
      shards_->alone() && fused_.members().size() == batches_.size() && adamw_.entries().empty();
  if (!captured && (watched || !alone) && !accepts_gradients()) return;
  GLUON_CHECK(!halfway_, "Optimizer: an earlier step failed halfway; load a state before the next one");
  say_path();
  for (const auto& observer : observers_) observer->before_step(step_);
  halfway_ = !captured;  // what a graph records moves nothing now
  const auto tell = [&](const BatchStep& batch) {
    for (const auto& observer : observers_) {
      if (observer->watches(step_)) observer->after_step(batch);
    }
  };
  fused_.run();
  int64_t phase = 0;
  for (LayerBatch& layers : batches_) {
    if (fused_.contains(layers)) {
      if (watched) tell(layers.fused_batch(step_));
      shards_->send_parameters(++phase);
      continue;
    }
    for (const auto& run : layers.runs(options_.scratch_bytes)) {
      BatchStep batch = layers.gather_gradients(run, step_);
      layers.accumulate_momentum(batch);
      batch.direction = layers.norm().step_direction(batch.momentum);
      layers.choose_radius(batch, multipliers.of(run.front().layer));
      layers.move_parameters(batch);
      tell(batch);
    }
    shards_->send_parameters(++phase);
  }
  adamw_.step(multipliers, [&](at::Tensor norms) { return shards_->sum(std::move(norms)); });
  if (watched) {
    for (const AdamW::Entry& entry : adamw_.entries()) {
      if (!entry.layer.parameter.grad().defined()) continue;
      const std::vector<Block> blocks = split_blocks(entry.layer, "");
      tell(adamw_batch(entry, blocks, step_));
    }
  }
  shards_->finish_parameters();
  if (!captured) ++step_;
  halfway_ = false;
}

void Optimizer::wait() {
  const Block* bad = fused_.bad_block();
  if (bad == nullptr) return;
  fused_.forget();
  --step_;  // it moved nothing
  refuse_step(bad->layer.name);
}

bool Optimizer::accepts_gradients() {
  const std::optional<std::size_t> layer = first_non_finite_layer();
  at::Tensor bad = at::zeros({static_cast<int64_t>(layers_.size())}, at::kInt);
  if (layer) bad[static_cast<int64_t>(*layer)].fill_(1);
  bad = shards_->sum(bad);
  if (bad.max().item<int>() == 0) return true;
  refuse_step(layers_[static_cast<std::size_t>(bad.argmax().item<int64_t>())].name);
  return false;
}

void Optimizer::refuse_step(const std::string& layer) {
  if (options_.non_finite == NonFinite::kError) {
    throw NonFiniteGradient(join("Optimizer: the gradient of layer '", layer, "' holds NaN or Inf at step ",
                                 step_, "; nothing was updated"));
  }
  ++skipped_;
}

// A slower path on a GPU is not taken in silence.
void Optimizer::say_path() {
  if (std::exchange(path_said_, true)) return;
  for (const LayerBatch& layers : batches_) {
    const Layer& layer = layers.blocks().front().layer;
    if (!layer.parameter.is_cuda() || fused_.contains(layers)) continue;
    const std::string why = kernels::why_unavailable(layer.parameter.device());
    warn(why.empty() ? join("layer '", layer.name, "' and those like it do not fit the GPU's fused step (",
                            layers.norm().name(), "): they step by themselves, slower")
                     : join("the step runs without the GPU's kernels, slower: ", why));
    if (!why.empty()) return;
  }
  if (!fused_.members().empty() && !adamw_.entries().empty()) {
    warn("AdamW's layers are outside the GPU's fused step: each step waits for the device");
  }
}

void Optimizer::check_layers() const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& [name, parameter, role, group] = layers_[i];
    const auto& [sizes, dtype, device] = expected_[i];
    GLUON_CHECK(parameter.sizes() == at::IntArrayRef(sizes) && parameter.scalar_type() == dtype &&
                    parameter.device() == device,
                "Optimizer: layer '", name, "' was ", at::IntArrayRef(sizes), " ", dtype, " on ", device,
                " at the start and is now ", parameter.sizes(), " ", parameter.scalar_type(), " on ",
                parameter.device());
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    GLUON_CHECK(gradient.layout() == at::kStrided && gradient.sizes() == parameter.sizes() &&
                    gradient.scalar_type() == dtype && gradient.device() == device,
                "Optimizer: layer '", name, "' needs a gradient like itself, Strided ", dtype, " ",
                parameter.sizes(), " on ", device, ", got ", gradient.layout(), " ", gradient.scalar_type(),
                " ", gradient.sizes(), " on ", gradient.device());
  }
}

void Optimizer::report_missing_gradients() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string& name = layers_[i].name;
    if (!owns(i) || layers_[i].parameter.grad().defined() || !reported_.insert(name).second) continue;
    warn(join("layer '", name, "' has no gradient; it is skipped"));
  }
}

std::optional<std::size_t> Optimizer::first_non_finite_layer() const {
  // One pass per gradient and one transfer for all: the extremes are finite exactly when every entry is.
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor& gradient = layers_[i].parameter.grad();
    if (!gradient.defined() || !shards_->owns(i)) continue;
    gradients.push_back(gradient);
    index.push_back(i);
  }
  if (gradients.empty()) return {};
  const at::Tensor flags = all_finite(gradients).cpu();
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (!flags[static_cast<int64_t>(i)].item<bool>()) return index[i];
  }
  return {};
}

void Optimizer::begin_gradients(int64_t backward_passes) { shards_->gradients().begin(backward_passes); }

void Optimizer::reduce_gradients() {
  shards_->gradients().finish();
  reduced_ = true;
}

void Optimizer::zero_grad() {
  shards_->gradients().cancel();
  reduced_ = false;
  for (Layer& layer : layers_) layer.parameter.mutable_grad() = at::Tensor();
}

std::string Optimizer::routing_report() const { return geometry_.routing_report(layers_); }

void Optimizer::set_radius_multiplier(double multiplier) {
  check_multiplier(multiplier);
  radius_multipliers_.all = multiplier;
}

void Optimizer::set_group_radius_multiplier(int64_t group, double multiplier) {
  check_multiplier(multiplier);
  radius_multipliers_.groups[group] = multiplier;
}

void Optimizer::set_group_beta(int64_t group, double beta) {
  (void)momentum_.with_beta(beta);  // checked also where no layer is in the group
  for (LayerBatch& layers : batches_) {
    if (layers.blocks().front().layer.group == group) layers.set_beta(beta);
  }
}

void Optimizer::add_observer(std::shared_ptr<StepObserver> observer) {
  GLUON_CHECK(observer != nullptr, "Optimizer: expected an observer, got none");
  observers_.push_back(std::move(observer));
}

void Optimizer::warn(const std::string& sentence) const {
  if (options_.warn) {
    options_.warn(sentence);
  } else {
    std::clog << "gluon: " << sentence << '\n';
  }
}

}  // namespace gluon
