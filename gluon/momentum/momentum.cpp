#include "gluon/momentum/momentum.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {

Momentum::Momentum(Kind kind, double beta) : kind_(kind), beta_(beta) {
  GLUON_CHECK(beta >= 0 && beta < 1, "Momentum: beta must be in [0, 1), got ", beta);
}

Momentum::Momentum(double beta) : Momentum(Kind::kBeta, beta) {}

Momentum Momentum::over(const Momentum& geometry) const {
  if (kind_ != Kind::kBeta) return *this;
  return geometry.kind_ == Kind::kNesterov ? nesterov(beta_) : ema(beta_);
}

Momentum Momentum::none() { return {Kind::kNone, 0}; }
Momentum Momentum::ema(double beta) { return {Kind::kEma, beta}; }
Momentum Momentum::nesterov(double beta) { return {Kind::kNesterov, beta}; }
Momentum Momentum::theorem3() { return {Kind::kTheorem3, 0}; }

double Momentum::beta(int64_t step) const {
  return kind_ == Kind::kTheorem3 ? 1 - 1 / std::sqrt(static_cast<double>(step) + 1) : beta_;
}

std::optional<double> Momentum::constant_beta() const {
  if (kind_ == Kind::kNone || kind_ == Kind::kTheorem3) return {};
  return beta_;
}

Momentum Momentum::with_beta(double beta) const {
  GLUON_CHECK(constant_beta(), "Momentum: ", name(), " has no beta to change");
  return {kind_, beta};
}

void Momentum::accumulate(at::Tensor buffer, const at::Tensor& gradient, int64_t step) const {
  buffer.lerp_(gradient.to(buffer.scalar_type()), 1 - beta(step));
}

void Momentum::write_input(at::Tensor input, const at::Tensor& buffer, const at::Tensor& gradient, int64_t step) const {
  if (kind_ == Kind::kNone) {
    input.copy_(gradient);
  } else {
    at::lerp_out(input, gradient.to(buffer.scalar_type()), buffer, beta(step));
  }
}

std::string Momentum::name() const {
  switch (kind_) {
    case Kind::kNone: return "none";
    case Kind::kBeta:
    case Kind::kEma: return spec_text("ema", {beta_});
    case Kind::kNesterov: return spec_text("nesterov", {beta_});
    case Kind::kTheorem3: return "theorem3";
  }
  return {};
}

Momentum make_momentum(std::string_view name) {
  const Spec spec = parse_spec(name, "momentum");
  if (spec.arguments.empty()) {
    if (spec.name == "none") return Momentum::none();
    if (spec.name == "theorem3") return Momentum::theorem3();
  }
  if (spec.arguments.size() == 1) {
    if (spec.name == "ema") return Momentum::ema(parse_number(spec.arguments[0], "momentum"));
    if (spec.name == "nesterov") return Momentum::nesterov(parse_number(spec.arguments[0], "momentum"));
  }
  throw InputError(join("momentum: unknown name '", name, "'; allowed are none, ema(BETA), nesterov(BETA), theorem3"));
}

}  // namespace gluon
