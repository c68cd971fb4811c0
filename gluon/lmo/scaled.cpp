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

std::string ScaledNorm::name() const { return join("scaled(", number_text(factor_), ",", base_->name(), ")"); }

LmoForm ScaledNorm::lmo_form() const {
  LmoForm form = base_->lmo_form();
  form.factor /= factor_;
  return form;
}

// Not in place: autograd may need what the base has returned.
at::Tensor ScaledNorm::compute_norm(const at::Tensor& x) const { return base_->norm(x) * factor_; }

at::Tensor ScaledNorm::compute_dual_norm(const at::Tensor& g) const { return base_->dual_norm(g) / factor_; }

at::Tensor ScaledNorm::compute_lmo(const at::Tensor& g) const {
  const at::Tensor direction = base_->lmo(g);
  return direction.requires_grad() ? direction * (1 / factor_) : direction.mul_(1 / factor_);
}

}  // namespace gluon
