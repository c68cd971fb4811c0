#include "gluon/smoothness/recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/geometry/presets.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon {
namespace {

constexpr const char* kExact = "exact";
constexpr const char* kAuto = "auto";
constexpr const char* kAutoOnGpu = "polar_express:8";
constexpr const char* kSvd = "svd";

// Block `index` of a stack, shaped as the block's part of its parameter.
at::Tensor slot(const at::Tensor& stack, std::size_t index, const at::Tensor& like) {
  return stack.select(0, static_cast<int64_t>(index)).view(like.sizes());
}

// <a, b> of each matrix, (c, m, n) -> (c).
at::Tensor inner_products(const at::Tensor& a, const at::Tensor& b) {
  // On a GPU a product of one row with one column has no fast kernel.
  if (a.is_cuda()) return a.mul(b).sum({1, 2});
  const int64_t c = a.size(0);
  return at::bmm(a.reshape({c, 1, -1}), b.reshape({c, -1, 1})).flatten();
}

bool same_place(const Block& a, const Block& b) {
  return a.shape == b.shape && a.leading == b.leading && a.dim == b.dim && a.start == b.start &&
         a.length == b.length;
}

std::vector<double> to_host(const at::Tensor& values) {
  const at::Tensor host = values.to(at::kCPU, at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

}  // namespace

void RecorderOptions::validate() const {
  GLUON_CHECK(every >= 1, "Recorder: every must be >= 1, got ", every);
  GLUON_CHECK(estimator != Estimator::kUnknown,
              "Recorder: the estimator must be consecutive, full or same_batch, got unknown");
  if (dual != kExact && dual != kAuto) (void)make_orthogonalizer(dual);
}

Geometry measuring_geometry(const Geometry& geometry) {
  std::vector<Rule> rules;
  for (const Rule& rule : geometry.rules()) {
    if (!rule.norm.is_adamw()) rules.push_back(rule);
  }
  if (rules.size() < geometry.rules().size()) {
    const Geometry fallback = presets::unscion();
    rules.insert(rules.end(), fallback.rules().begin(), fallback.rules().end());
  }
  return Geometry(std::move(rules), geometry.momentum());
}

Recorder::Recorder(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions options)
    : options_(std::move(options)) {
  options_.validate();
  samples_.estimator = options_.estimator;
  const std::vector<std::size_t> assignment = geometry.assign(layers);
  using Key = std::tuple<int64_t, int64_t, std::string, at::ScalarType, std::string>;
  std::map<Key, std::size_t> known;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const Rule& rule = geometry.rules()[assignment[i]];
    GLUON_CHECK(!rule.norm.is_adamw(), "Recorder: layer '", layer.name,
                "' has no norm, its rule leaves it to AdamW; give a geometry that measures it");
    const bool on_gpu = layer.parameter.is_cuda();
    const std::string dual = options_.dual != kAuto ? options_.dual : on_gpu ? kAutoOnGpu : kExact;
    for (Block& block : split_blocks(layer, rule.split)) {
      // An LMO with the orthogonalizer asked for stands in for the dual where the norm takes one from outside.
      const NormPtr plain = rule.norm.resolve(block.shape, kDefaultOrthogonalizer);
      const bool by_lmo = dual != kExact && rule.norm.resolve(block.shape, kSvd)->name() != plain->name();
      const NormPtr norm = by_lmo ? rule.norm.resolve(block.shape, dual) : plain;
      samples_.layers.push_back(
          {block.name, std::string(role_name(layer.role)), plain->name(), by_lmo ? dual : kExact, {}});
      if (options_.measures && !options_.measures(i)) continue;
      const Key key{block.shape.rows, block.shape.cols, norm->name(), layer.parameter.scalar_type(),
                    layer.parameter.device().str()};
      const auto [entry, fresh] = known.emplace(key, groups_.size());
      if (fresh) groups_.push_back({.norm = norm, .exact = !by_lmo});
      Group& group = groups_[entry->second];
      const bool first = slots_.emplace(block.name, std::pair(entry->second, group.blocks.size())).second;
      GLUON_CHECK(first, "Recorder: two layers are called '", block.name, "'");
      group.places.push_back(samples_.layers.size() - 1);
      group.blocks.push_back(std::move(block));
    }
  }
}

bool Recorder::needs_reference(int64_t step) const {
  return options_.estimator == Estimator::kSameBatch && step % options_.every == 0;
}

void Recorder::take_reference() {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) group.reference = group.gather_gradients();
}

void Recorder::before_step(int64_t step) {
  const at::NoGradGuard no_grad;
  if (open_) finish_pair(step);
  if (step % options_.every == 0) begin_pair();
}

void Recorder::begin_pair() {
  for (Group& group : groups_) {
    GLUON_CHECK(options_.estimator != Estimator::kSameBatch || group.reference.stack.defined(),
                "Recorder: same_batch needs take_reference() before the step");
    group.gradients =
        group.reference.stack.defined() ? std::exchange(group.reference, {}) : group.gather_gradients();
    group.parameters = group.stack();
    for (std::size_t i = 0; i < group.blocks.size(); ++i) {
      const at::Tensor parameter = group.blocks[i].of(group.blocks[i].layer.parameter);
      slot(group.parameters, i, parameter).copy_(parameter);
    }
    group.momentum = at::zeros_like(group.parameters);
    group.radius = at::full({group.parameters.size(0)}, Sample::kMissing, group.parameters.options());
    group.seen.assign(group.blocks.size(), 0);
  }
  open_ = true;
}

void Recorder::after_step(const BatchStep& batch) {
  if (!open_) return;
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const auto found = slots_.find(batch.blocks[i].name);
    if (found == slots_.end()) continue;
    const auto [group, index] = found->second;
    // A geometry that cuts this layer in another way measures no momentum.
    if (!same_place(batch.blocks[i], groups_[group].blocks[index])) continue;
    const auto from = static_cast<int64_t>(i);
    groups_[group].momentum.select(0, static_cast<int64_t>(index)).copy_(batch.momentum[from]);
    groups_[group].seen[index] = 1;
    // AdamW's learning rate is no radius.
    if (batch.norm != nullptr) groups_[group].radius[static_cast<int64_t>(index)].copy_(batch.radius[from]);
  }
}

void Recorder::finish_pair(int64_t step) {
  // All groups before the first transfer: a GPU computes one while the next is launched.
  std::vector<Measured> measured;
  for (Group& group : groups_) measured.push_back(measure(group));
  for (std::size_t i = 0; i < groups_.size(); ++i) append_samples(groups_[i], measured[i], step);
  open_ = false;
}

Recorder::Measured Recorder::measure(Group& group) {
  const at::Tensor displaced = std::exchange(group.parameters, {}).neg_();
  for (std::size_t i = 0; i < group.blocks.size(); ++i) {
    const at::Tensor parameter = group.blocks[i].of(group.blocks[i].layer.parameter);
    slot(displaced, i, parameter).add_(parameter);
  }
  auto [change, present] = std::exchange(group.gradients, {});
  const at::Tensor length = group.norm->norm(displaced);
  const at::Tensor alignment =
      inner_products(change, displaced).neg_().div_(group.dual_norm(change).mul_(length));
  const auto [latest, still_present] = group.gather_gradients();
  change = change.neg_().add_(latest);
  const at::Tensor momentum = group.dual_norm(std::exchange(group.momentum, {}));
  for (std::size_t i = 0; i < present.size(); ++i) present[i] = present[i] && still_present[i];
  return {at::cat({group.dual_norm(change), length, group.dual_norm(latest), momentum, alignment,
                   std::exchange(group.radius, {})}),
          present};
}

void Recorder::append_samples(const Group& group, const Measured& measured, int64_t step) {
  const std::vector<double> values = to_host(measured.values);
  const std::size_t count = group.blocks.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](std::size_t row) { return values[row * count + i]; };
    const double smoothness = value(0) / value(1);
    // A layer without a gradient, or one that did not move, has no smoothness there.
    if (!measured.present[i] || !std::isfinite(smoothness)) continue;
    has_samples_ = true;
    samples_.layers[group.places[i]].samples.push_back(
        {.step = step,
         .gradient_change = value(0),
         .displacement = value(1),
         .smoothness = smoothness,
         .gradient = value(2),
         .momentum = group.seen[i] ? value(3) : Sample::kMissing,
         .alignment = value(4),
         .radius = value(5)});
  }
}

at::Tensor Recorder::Group::stack() const {
  const Block& block = blocks.front();
  const at::Tensor& parameter = block.layer.parameter;
  return at::empty({static_cast<int64_t>(blocks.size()), block.shape.rows, block.shape.cols},
                   parameter.options().requires_grad(false).dtype(compute_type(parameter.scalar_type())));
}

Recorder::Gradients Recorder::Group::gather_gradients() const {
  Gradients gathered{stack(), {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const at::Tensor& whole = blocks[i].layer.parameter.grad();
    gathered.present.push_back(whole.defined());
    if (!whole.defined()) {
      gathered.stack.select(0, static_cast<int64_t>(i)).zero_();
      continue;
    }
    const at::Tensor gradient = blocks[i].of(whole);
    slot(gathered.stack, i, gradient).copy_(gradient);
  }
  return gathered;
}

at::Tensor Recorder::Group::dual_norm(const at::Tensor& g) const {
  if (exact) return norm->dual_norm(g);
  // On a GPU as a step wants it: the kernels stand behind step_direction() alone.
  return inner_products(g, g.is_cuda() ? norm->step_direction(g) : norm->lmo(g)).neg_();
}

Trajectory Recorder::measured() const {
  Trajectory layers = samples_;
  for (LayerTrajectory& layer : layers.layers) layer.samples.clear();
  return layers;
}

Trajectory Recorder::take_samples() {
  has_samples_ = false;
  Trajectory taken = samples_;
  for (LayerTrajectory& layer : samples_.layers) layer.samples.clear();
  return taken;
}

int64_t Recorder::bytes_held() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) {
    for (const at::Tensor& tensor :
         {group.reference.stack, group.parameters, group.gradients.stack, group.momentum, group.radius}) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

}  // namespace gluon
