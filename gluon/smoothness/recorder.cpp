#include "gluon/smoothness/recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/distributed/collective.h"
#include "gluon/geometry/presets.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/plan/step_plan.h"
#include "gluon/update/fused_executor.h"

namespace gluon {
namespace {

constexpr const char* kExact = "exact";
constexpr const char* kAuto = "auto";
constexpr const char* kAutoOnGpu = "polar_express:8";
constexpr const char* kSvd = "svd";

// <a, b> of each matrix, (c, m, n) -> (c).
at::Tensor inner_products(const at::Tensor& a, const at::Tensor& b) {
  // On a GPU a product of one row with one column has no fast kernel.
  if (a.is_cuda()) return a.mul(b).sum({1, 2});
  const int64_t c = a.size(0);
  return at::bmm(a.reshape({c, 1, -1}), b.reshape({c, -1, 1})).flatten();
}

bool same_place(const Block& a, const Block& b) {
  return a.shape == b.shape && a.leading == b.leading && a.dim == b.dim && a.start == b.start && a.length == b.length;
}

Trajectory without_samples(Trajectory trajectory) {
  for (LayerTrajectory& layer : trajectory.layers) layer.samples.clear();
  return trajectory;
}

// Parameters or gradients of a group, (c, m, n), zero for a layer without a gradient.
struct Stack {
  at::Tensor matrices;
  std::vector<char> present;
};

enum class Of { kParameters, kGradients };

// Matrices of one batch of the plan. Stacks are undefined between pairs.
struct Group {
  NormPtr norm = nullptr;
  bool exact = true;  // the dual comes from the norm itself, not from its LMO
  std::vector<Block> blocks{};
  std::vector<std::size_t> places{};  // of the blocks in the trajectory's layers
  Stack reference{};                  // taken before the step
  at::Tensor parameters{};            // X_k
  Stack gradients{};                  // g_k
  at::Tensor momentum{};              // m_k
  at::Tensor radius{};                // (c); NaN where the step reported none
  std::vector<char> seen{};           // whether the step reported its momentum

  Stack gather(Of what) const;
  at::Tensor dual_norm(const at::Tensor& g) const;
};

// What a pair says about a group's matrices, still on their device.
struct Measured {
  at::Tensor values;          // (6, c): gradient_change, displacement, gradient, momentum, alignment, radius
  std::vector<char> present;  // whether a matrix had both gradients
};

Stack Group::gather(Of what) const {
  const Block& first = blocks.front();
  const at::TensorOptions options = first.layer.parameter.options();
  Stack gathered{at::empty({static_cast<int64_t>(blocks.size()), first.shape.rows, first.shape.cols},
                           options.requires_grad(false).dtype(compute_type(first.layer.parameter.scalar_type()))),
                 {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const at::Tensor& parameter = blocks[i].layer.parameter;
    const at::Tensor& whole = what == Of::kParameters ? parameter : parameter.grad();
    gathered.present.push_back(whole.defined());
    if (!whole.defined()) {
      gathered.matrices.select(0, static_cast<int64_t>(i)).zero_();
      continue;
    }
    const at::Tensor block = blocks[i].of(whole);
    stacked_block(gathered.matrices, i, block.sizes()).copy_(block);
  }
  return gathered;
}

at::Tensor Group::dual_norm(const at::Tensor& g) const {
  if (!exact) return inner_products(g, device_lmo(*norm, g)).neg_();
  const at::Tensor finite = g.isfinite().flatten(1).all(1);
  if (finite.all().item<bool>()) return norm->dual_norm(g);
  // A reference gradient that nobody has judged may hold NaN or Inf, which an SVD refuses.
  const at::Tensor clean = at::where(finite.view({-1, 1, 1}), g, at::zeros({}, g.options()));
  return norm->dual_norm(clean).masked_fill_(finite.logical_not(), std::nan(""));
}

Measured measure(Group& group) {
  const at::Tensor displaced = group.gather(Of::kParameters).matrices.sub_(std::exchange(group.parameters, {}));
  auto [change, present] = std::exchange(group.gradients, {});
  const at::Tensor length = group.norm->norm(displaced);
  const at::Tensor alignment = inner_products(change, displaced).neg_().div_(group.dual_norm(change).mul_(length));
  const auto [latest, still_present] = group.gather(Of::kGradients);
  change = change.neg_().add_(latest);
  const at::Tensor momentum = group.dual_norm(std::exchange(group.momentum, {}));
  for (std::size_t i = 0; i < present.size(); ++i) present[i] = present[i] && still_present[i];
  return {at::stack({group.dual_norm(change), length, group.dual_norm(latest), momentum, alignment,
                     std::exchange(group.radius, {})}),
          present};
}

}  // namespace

void RecorderOptions::validate() const {
  GLUON_CHECK(every >= 1, "Recorder: every must be >= 1, got ", every);
  GLUON_CHECK(start >= 0, "Recorder: start must be >= 0, got ", start);
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

struct Recorder::Parts {
  Parts(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions given);

  void add_group(const StepPlan::Batch& batch, const Rule& rule);
  void begin_pair();
  void finish_pair(int64_t step);
  void append_samples(const Group& group, const Measured& measured, int64_t step);

  RecorderOptions options;
  std::vector<Group> groups;
  std::map<std::string, std::pair<std::size_t, std::size_t>> slots;  // block name -> group, index
  Trajectory samples;
  bool open = false;  // X_k and g_k are held
};

Recorder::Parts::Parts(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions given)
    : options(std::move(given)) {
  options.validate();
  samples.estimator = options.estimator;
  const StepPlan plan = route(layers, geometry);
  GLUON_CHECK(plan.adamw.empty(), "Recorder: layer '", layers[plan.adamw.front().layer].name,
              "' has no norm, its rule leaves it to AdamW; give a geometry that measures it");
  samples.layers.resize(plan.names.size());
  for (const StepPlan::Batch& batch : plan.batches) add_group(batch, geometry.rules()[batch.rule]);
}

void Recorder::Parts::add_group(const StepPlan::Batch& batch, const Rule& rule) {
  const MatrixShape& shape = batch.blocks.front().shape;
  const bool on_gpu = batch.blocks.front().layer.parameter.is_cuda();
  const std::string dual = options.dual != kAuto ? options.dual : on_gpu ? kAutoOnGpu : kExact;
  // The LMO with the orthogonalizer asked for replaces the exact dual where the norm lets one choose it.
  const bool by_lmo = dual != kExact && rule.norm.resolve(shape, kSvd)->name() != batch.norm->name();
  Group group{.norm = by_lmo ? rule.norm.resolve(shape, dual) : batch.norm, .exact = !by_lmo};
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const Block& block = batch.blocks[i];
    samples.layers[batch.places[i]] = {
        block.name, std::string(role_name(block.layer.role)), batch.norm->name(), by_lmo ? dual : kExact, {}};
    if (options.measures && !options.measures(batch.layers[i])) continue;
    const bool first = slots.emplace(block.name, std::pair(groups.size(), group.blocks.size())).second;
    GLUON_CHECK(first, "Recorder: two layers are called '", block.name, "'");
    group.places.push_back(batch.places[i]);
    group.blocks.push_back(block);
  }
  if (!group.blocks.empty()) groups.push_back(std::move(group));
}

Recorder::Recorder(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions options)
    : parts_(std::make_unique<Parts>(layers, geometry, std::move(options))) {}

Recorder::~Recorder() = default;

bool Recorder::watches(int64_t step) const {
  return step >= parts_->options.start && step % parts_->options.every == 0;
}

bool Recorder::has_samples() const {
  return std::any_of(parts_->samples.layers.begin(), parts_->samples.layers.end(),
                     [](const LayerTrajectory& layer) { return !layer.samples.empty(); });
}

bool Recorder::needs_reference(int64_t step) const {
  return parts_->options.estimator == Estimator::kSameBatch && watches(step);
}

void Recorder::take_reference() {
  const at::NoGradGuard no_grad;
  for (Group& group : parts_->groups) group.reference = group.gather(Of::kGradients);
}

void Recorder::abandon_pair() {
  for (Group& group : parts_->groups) {
    group.reference = {};
    group.gradients = {};
    group.parameters = at::Tensor();
    group.momentum = at::Tensor();
  }
  parts_->open = false;
}

void Recorder::before_step(int64_t step) {
  const at::NoGradGuard no_grad;
  if (parts_->open) parts_->finish_pair(step);
  if (watches(step)) parts_->begin_pair();
}

void Recorder::Parts::begin_pair() {
  for (Group& group : groups) {
    GLUON_CHECK(options.estimator != Estimator::kSameBatch || group.reference.matrices.defined(),
                "Recorder: same_batch needs take_reference() before the step");
    group.gradients =
        group.reference.matrices.defined() ? std::exchange(group.reference, {}) : group.gather(Of::kGradients);
    group.parameters = group.gather(Of::kParameters).matrices;
    group.momentum = at::zeros_like(group.parameters);
    group.radius = at::full({group.parameters.size(0)}, Sample::kMissing, group.parameters.options());
    group.seen.assign(group.blocks.size(), 0);
  }
  open = true;
}

void Recorder::after_step(const BatchStep& batch) {
  if (!parts_->open) return;
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const auto found = parts_->slots.find(batch.blocks[i].name);
    if (found == parts_->slots.end()) continue;
    const auto [group, index] = found->second;
    // A geometry that cuts this layer in another way measures no momentum.
    if (!same_place(batch.blocks[i], parts_->groups[group].blocks[index])) continue;
    const auto from = static_cast<int64_t>(i);
    parts_->groups[group].momentum.select(0, static_cast<int64_t>(index)).copy_(batch.momentum[from]);
    parts_->groups[group].seen[index] = 1;
    // AdamW's learning rate is no radius.
    if (batch.norm != nullptr) parts_->groups[group].radius[static_cast<int64_t>(index)].copy_(batch.radius[from]);
  }
}

void Recorder::Parts::finish_pair(int64_t step) {
  // All groups before the first transfer: a GPU computes one while the next is launched.
  std::vector<Measured> measured;
  for (Group& group : groups) measured.push_back(measure(group));
  for (std::size_t i = 0; i < groups.size(); ++i) append_samples(groups[i], measured[i], step);
  open = false;
}

void Recorder::Parts::append_samples(const Group& group, const Measured& measured, int64_t step) {
  const at::Tensor host = measured.values.to(at::kCPU, at::kDouble);
  const auto values = host.accessor<double, 2>();
  for (std::size_t i = 0; i < group.blocks.size(); ++i) {
    const auto value = [&](int64_t row) { return values[row][static_cast<int64_t>(i)]; };
    const double smoothness = value(0) / value(1);
    // A layer without a gradient, or one that did not move, has no smoothness there.
    if (!measured.present[i] || !std::isfinite(smoothness)) continue;
    samples.layers[group.places[i]].samples.push_back({.step = step,
                                                       .gradient_change = value(0),
                                                       .displacement = value(1),
                                                       .smoothness = smoothness,
                                                       .gradient = value(2),
                                                       .momentum = group.seen[i] ? value(3) : Sample::kMissing,
                                                       .alignment = value(4),
                                                       .radius = value(5)});
  }
}

Trajectory Recorder::measured() const { return without_samples(parts_->samples); }

Trajectory Recorder::take_samples() { return std::exchange(parts_->samples, measured()); }

int64_t Recorder::bytes_held() const {
  int64_t bytes = 0;
  for (const Group& group : parts_->groups) {
    for (const at::Tensor& tensor :
         {group.reference.matrices, group.parameters, group.gradients.matrices, group.momentum, group.radius}) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

Trajectory gather_samples(Collective& collective, const Trajectory& mine) {
  // A sample as numbers: the index of its layer, its step, then its values.
  std::vector<double> rows;
  for (std::size_t layer = 0; layer < mine.layers.size(); ++layer) {
    for (const Sample& sample : mine.layers[layer].samples) {
      rows.insert(rows.end(), {static_cast<double>(layer), static_cast<double>(sample.step)});
      for (const auto value : kSampleValues) rows.push_back(sample.*value);
    }
  }
  Trajectory all = without_samples(mine);
  const std::vector<double> gathered = gather(collective, rows);
  for (auto number = gathered.begin(); number != gathered.end();) {
    LayerTrajectory& layer = all.layers[static_cast<std::size_t>(*number++)];
    Sample sample{.step = static_cast<int64_t>(*number++)};
    for (const auto value : kSampleValues) sample.*value = *number++;
    layer.samples.push_back(sample);
  }
  return all;
}

}  // namespace gluon
