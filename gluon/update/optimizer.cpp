#include "gluon/update/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gluon/core/check.h"
#include "gluon/update/optimizer_parts.h"

namespace gluon {
namespace {

void check_multiplier(double multiplier) {
  GLUON_CHECK(std::isfinite(multiplier) && multiplier >= 0,
              "Optimizer: the radius multiplier must be >= 0 and finite, got ", multiplier);
}

// Names of this rank's entries of a state, with the sizes that each may have.
std::map<std::string, std::vector<std::vector<int64_t>>> expected_entries(std::span<const LayerBatch> batches,
                                                                          const AdamW& adamw) {
  std::map<std::string, std::vector<std::vector<int64_t>>> expected;
  for (const LayerBatch& batch : batches) expected.merge(batch.state_entries());
  for (const AdamW::Entry& entry : adamw.entries()) {
    const std::vector<int64_t> sizes = entry.first.sizes().vec();
    expected["adamw.first/" + entry.layer.name] = expected["adamw.second/" + entry.layer.name] = {sizes};
    expected["adamw.steps/" + entry.layer.name] = {std::vector<int64_t>()};
  }
  return expected;
}

// The entry called `name`, whose sizes are one of `allowed`.
at::Tensor find_entry(const OptimizerState& state, const std::string& name,
                      std::span<const std::vector<int64_t>> allowed) {
  const auto entry = state.tensors.find(name);
  const auto fits = [&](const std::vector<int64_t>& sizes) { return entry->second.sizes() == at::IntArrayRef(sizes); };
  const bool found = entry != state.tensors.end() && std::ranges::any_of(allowed, fits);
  return found ? entry->second : state.find(name, allowed.front());
}

// Some parts of a rule have no kernels: their layers must not leave the fast path of a GPU unseen.
std::string note_on_slow_rules(const StepPlan& plan, const Geometry& geometry) {
  std::set<std::size_t> seen;
  std::string note;
  for (const StepPlan::Batch& batch : plan.batches) {
    const Layer& layer = batch.blocks.front().layer;
    const std::string why = missing_kernels(geometry.rules()[batch.rule], *batch.norm);
    if (why.empty() || !layer.parameter.is_cuda() || !seen.insert(batch.rule).second) continue;
    note += join("layer '", layer.name, "' and those of its rule are not part of the GPU's fused step (", why,
                 "); they take a slower path\n");
  }
  return note;
}

constexpr int64_t kMostSteps = int64_t{1} << 53;  // beyond any run, and exact as a double

// A state may come from a file that anyone wrote.
void check_entry(const std::string& name, const at::Tensor& tensor) {
  if (!name.starts_with("adamw.steps/")) {
    GLUON_CHECK(tensor.is_floating_point(), "optimizer state: '", name, "' must be floating point, got ",
                tensor.scalar_type());
    return;
  }
  const auto steps = tensor.item<double>();
  GLUON_CHECK(steps >= 0 && steps <= static_cast<double>(kMostSteps) && std::floor(steps) == steps,
              "optimizer state: '", name, "' must be a whole number in 0..", kMostSteps, ", got ", steps);
}

}  // namespace

at::Tensor OptimizerState::find(const std::string& name, at::IntArrayRef sizes) const {
  const auto entry = tensors.find(name);
  GLUON_CHECK(entry != tensors.end(), "optimizer state: '", name, "' is missing");
  GLUON_CHECK(entry->second.sizes() == sizes, "optimizer state: '", name, "' has shape ", entry->second.sizes(),
              ", expected ", sizes);
  return entry->second;
}

Optimizer::Optimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options)
    : parts_(std::make_unique<Parts>(std::move(layers), std::move(geometry), std::move(options))) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  Parts& parts = *parts_;
  wait();
  parts.check_layers();
  parts.owners.take_gradients();
  parts.warn_of_missing_gradients();

  const StepContext now = parts.context();
  const Parts::Work work = parts.divide(now);
  if (!work.judged_on_device && !parts.accepts_gradients()) return;
  parts.warn_of_slow_path(work);
  for (const auto& observer : parts.observers) observer->before_step(now.step);

  parts.unfinished = true;
  parts.fused.run(work.fused, now);
  parts.plain.run(work.plain, now);
  parts.move_adamw_layers(now);
  parts.owners.finish_parameters();
  parts.unfinished = false;
  ++parts.next_step;
}

void Optimizer::wait() {
  const Block* bad = parts_->fused.bad_block();
  if (bad == nullptr) return;
  parts_->fused.forget();
  --parts_->next_step;  // it moved nothing
  parts_->refuse_step(bad->layer.name);
}

void Optimizer::begin_gradients(int64_t backward_passes) { parts_->owners.begin_gradients(backward_passes); }

void Optimizer::reduce_gradients() { parts_->owners.reduce_gradients(); }

bool Optimizer::owns(std::size_t layer) const { return parts_->owners.owns(layer); }

void Optimizer::zero_grad() {
  parts_->owners.cancel_gradients();
  for (Layer& layer : parts_->layers) layer.parameter.mutable_grad() = at::Tensor();
}

std::string Optimizer::routing_report() const {
  return parts_->geometry.routing_report(parts_->layers) + note_on_slow_rules(parts_->plan, parts_->geometry);
}

void Optimizer::set_radius_multiplier(double multiplier) {
  check_multiplier(multiplier);
  parts_->radius_multipliers.all = multiplier;
}

double Optimizer::radius_multiplier() const { return parts_->radius_multipliers.all; }

void Optimizer::set_group_radius_multiplier(int64_t group, double multiplier) {
  check_multiplier(multiplier);
  parts_->radius_multipliers.groups[group] = multiplier;
}

const Momentum& Optimizer::momentum() const { return parts_->momentum; }

void Optimizer::set_group_beta(int64_t group, double beta) {
  (void)parts_->momentum.with_beta(beta);  // checked also where no layer is in the group
  for (LayerBatch& layers : parts_->batches) {
    if (layers.blocks().front().layer.group == group) layers.set_beta(beta);
  }
}

int64_t Optimizer::steps_taken() const { return parts_->next_step - (parts_->fused.bad_block() != nullptr ? 1 : 0); }

int64_t Optimizer::steps_skipped() const { return parts_->skipped; }

const std::vector<Layer>& Optimizer::layers() const { return parts_->layers; }

const OptimizerOptions& Optimizer::options() const { return parts_->options; }

void Optimizer::add_observer(std::shared_ptr<StepObserver> observer) {
  GLUON_CHECK(observer != nullptr, "Optimizer: expected an observer, got none");
  parts_->observers.push_back(std::move(observer));
}

std::vector<LayerRadius> Optimizer::effective_radii() const {
  Parts& parts = *parts_;
  (void)parts.fused.bad_block();  // radii count once their step has been judged
  std::vector<double> radii(parts.plan.names.size(), 0);
  for (const LayerBatch& batch : parts.batches) {
    const std::vector<double> last = batch.last_radius();
    for (std::size_t i = 0; i < last.size(); ++i) radii[batch.places()[i]] = last[i];
  }
  for (const AdamW::Entry& entry : parts.adamw.entries()) {
    radii[parts.plan.adamw[entry.place].place] = entry.last_learning_rate;
  }
  // Every matrix moves on one rank; the others add 0.
  const at::Tensor sum = parts.owners.sum(at::tensor(radii, at::kDouble));
  std::vector<LayerRadius> named;
  for (std::size_t i = 0; i < radii.size(); ++i) {
    named.push_back({parts.plan.names[i], sum.data_ptr<double>()[i]});
  }
  return named;
}

int64_t Optimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const LayerBatch& batch : parts_->batches) bytes += batch.state_bytes();
  for (const AdamW::Entry& entry : parts_->adamw.entries()) {
    bytes += entry.first.nbytes() + entry.second.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

OptimizerState Optimizer::state() const {
  OptimizerState state;
  state.step = steps_taken();
  for (const LayerBatch& batch : parts_->batches) batch.save(state);
  parts_->adamw.save(state);
  parts_->owners.gather(state.tensors);
  return state;
}

OptimizerState Optimizer::layer_state(std::size_t layer) const {
  OptimizerState state;
  state.step = steps_taken();
  const std::string& name = layers().at(layer).name;
  for (const LayerBatch& batch : parts_->batches) batch.save(state, name);
  parts_->adamw.save(state, name);
  parts_->owners.gather(state.tensors);
  return state;
}

void Optimizer::load_state(const OptimizerState& state) {
  GLUON_CHECK(state.version >= 1 && state.version <= OptimizerState::kVersion, "optimizer state: version ",
              state.version, " is not one of 1..", OptimizerState::kVersion);
  GLUON_CHECK(state.step >= 0 && state.step <= kMostSteps, "optimizer state: step must be in 0..", kMostSteps, ", got ",
              state.step);
  const auto belongs_to_another_rank = [&](const std::string& entry) {
    const std::string name = entry.substr(entry.find('/') + 1);
    for (std::size_t i = 0; i < layers().size(); ++i) {
      if (layers()[i].name == name) return !owns(i);
    }
    return false;
  };
  const auto expected = expected_entries(parts_->batches, parts_->adamw);
  for (const auto& [name, sizes] : expected) check_entry(name, find_entry(state, name, sizes));
  for (const auto& [name, tensor] : state.tensors) {
    GLUON_CHECK(expected.count(name) == 1 || belongs_to_another_rank(name), "optimizer state: '", name,
                "' belongs to no layer of this optimizer");
  }
  for (LayerBatch& batch : parts_->batches) batch.load(state);
  parts_->adamw.load(state);
  parts_->fused.momentum_changed();
  parts_->next_step = state.step;
  parts_->unfinished = false;
  parts_->owners.cancel_gradients();
}

}  // namespace gluon
