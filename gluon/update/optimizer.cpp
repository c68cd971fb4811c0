#include "gluon/update/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/update/optimizer_parts.h"

namespace gluon {
namespace {

void check_multiplier(double multiplier) {
  GLUON_CHECK(std::isfinite(multiplier) && multiplier >= 0, "Optimizer: the radius multiplier must be >= 0, got ",
              multiplier);
}

}  // namespace

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

std::string Optimizer::routing_report() const { return parts_->geometry.routing_report(parts_->layers); }

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

int64_t Optimizer::steps_taken() const { return parts_->steps_taken(); }

int64_t Optimizer::steps_skipped() const { return parts_->skipped; }

const std::vector<Layer>& Optimizer::layers() const { return parts_->layers; }

const OptimizerOptions& Optimizer::options() const { return parts_->options; }

void Optimizer::add_observer(std::shared_ptr<StepObserver> observer) {
  GLUON_CHECK(observer != nullptr, "Optimizer: expected an observer, got none");
  parts_->observers.push_back(std::move(observer));
}

}  // namespace gluon
