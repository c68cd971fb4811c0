#include "gluon/lmo/scaled.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {

ScaledNorm::ScaledNorm(double factor, NormPtr base) : factor_(factor), base_(std::move(base)) {
  GLUON_CHECK(std::isfinite(factor_) && factor_ > 0, "scaled: the factor must be > 0, got ", factor_);
  GLUON_CHECK(base_ != nullptr, "scaled: expected a norm, got none");
}

std::string ScaledNorm::name() const {
  return join("scaled(", number_text(factor_), ",", base_->name(), ")");
}

std::optional<Norm::PolarStep> ScaledNorm::polar_step() const {
  std::optional<PolarStep> step = base_->polar_step();
  if (step) step->factor /= factor_;
  return step;
}

std::optional<double> ScaledNorm::sign_factor() const {
  const std::optional<double> base = base_->sign_factor();
  return base ? std::optional(*base / factor_) : std::nullopt;
}

// Not in place: autograd may need what the base has returned.
at::Tensor ScaledNorm::compute_norm(const at::Tensor& x) const { return base_->norm(x) * factor_; }

at::Tensor ScaledNorm::compute_dual_norm(const at::Tensor& g) const { return base_->dual_norm(g) / factor_; }

at::Tensor ScaledNorm::compute_lmo(const at::Tensor& g) const {
  const at::Tensor direction = base_->lmo(g);
  return direction.requires_grad() ? direction / factor_ : direction.div_(factor_);
}

at::Tensor ScaledNorm::compute_step_direction(const at::Tensor& g, double factor) const {
  return base_->step_direction(g, factor / factor_);
}

}  // namespace gluon
