#include "gluon/radius/radius.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

at::Tensor filled(const BatchStep& batch, double value) {
  return at::full({batch.momentum.size(0)}, value, batch.momentum.options());
}

class ConstantRadius : public RadiusRule {
 public:
  explicit ConstantRadius(double t) : t_(t) {
    GLUON_CHECK(std::isfinite(t) && t > 0, "radius: must be > 0 and finite, got ", t);
  }
  at::Tensor radius(const BatchStep& batch) const override { return filled(batch, t_); }
  std::optional<double> constant() const override { return t_; }
  std::string name() const override { return number_text(t_); }

 private:
  double t_;
};

class HorizonRadius : public RadiusRule {
 public:
  HorizonRadius(double c, double p, int64_t steps) : c_(c), p_(p), steps_(steps) {
    GLUON_CHECK(std::isfinite(c) && c > 0, "horizon radius: c must be > 0 and finite, got ", c);
    GLUON_CHECK(std::isfinite(p) && p >= 0, "horizon radius: p must be >= 0 and finite, got ", p);
    GLUON_CHECK(steps >= 1, "horizon radius: steps must be >= 1, got ", steps);
  }
  at::Tensor radius(const BatchStep& batch) const override { return filled(batch, value()); }
  std::optional<double> constant() const override { return value(); }
  std::string name() const override {
    return join("horizon(", number_text(c_), ",", number_text(p_), ",", steps_, ")");
  }
  std::string explanation() const override { return join(value(), " = ", c_, " K^-", p_, " with K = ", steps_); }

 private:
  double value() const { return c_ * std::pow(static_cast<double>(steps_), -p_); }

  double c_;
  double p_;
  int64_t steps_;
};

class PowerRadius : public RadiusRule {
 public:
  explicit PowerRadius(double t) : t_(t) {
    GLUON_CHECK(std::isfinite(t) && t > 0, "power radius: t must be > 0 and finite, got ", t);
  }
  at::Tensor radius(const BatchStep& batch) const override {
    return filled(batch, t_ * std::pow(static_cast<double>(batch.step) + 1, -0.75));
  }
  std::string name() const override { return spec_text("power", {t_}); }

 private:
  double t_;
};

// Theorem 2; theorem 1 is zeta = 0.
class SmoothRadius : public RadiusRule {
 public:
  SmoothRadius(double l0, double l1, double zeta) : l0_(l0), l1_(l1), zeta_(zeta) {
    GLUON_CHECK(std::isfinite(l0) && std::isfinite(l1) && l0 >= 0 && l1 >= 0 && l0 + l1 > 0,
                "smooth radius: L0 and L1 must be >= 0 and not both 0, got L0 = ", l0, ", L1 = ", l1);
    GLUON_CHECK(zeta >= 0 && zeta < 1, "relative_noise radius: zeta must be in [0, 1), got ", zeta);
  }
  at::Tensor radius(const BatchStep& batch) const override {
    // (1-z) / (L0 / |g|* + (1+z) L1): finite for every |g|*, also where it overflows. A zero gradient gives 0.
    const at::Tensor dual = batch.momentum_dual_norm();
    return (1 - zeta_) / (l0_ / dual + (1 + zeta_) * l1_).masked_fill_(dual == 0, INFINITY);
  }
  std::string name() const override {
    return zeta_ == 0 ? spec_text("smooth", {l0_, l1_}) : spec_text("relative_noise", {l0_, l1_, zeta_});
  }

 private:
  double l0_;
  double l1_;
  double zeta_;
};

class SteepestRadius : public RadiusRule {
 public:
  explicit SteepestRadius(double eta) : eta_(eta) {
    GLUON_CHECK(std::isfinite(eta) && eta > 0, "steepest radius: eta must be > 0 and finite, got ", eta);
  }
  at::Tensor radius(const BatchStep& batch) const override { return eta_ * batch.momentum_dual_norm(); }
  std::string name() const override { return spec_text("steepest", {eta_}); }

 private:
  double eta_;
};

}  // namespace

Radius::Radius(double constant) : rule_(std::make_shared<ConstantRadius>(constant)) {}

Radius::Radius(std::shared_ptr<const RadiusRule> rule) : rule_(std::move(rule)) {
  GLUON_CHECK(rule_ != nullptr, "radius: expected a rule, got none");
}

Radius constant_radius(double t) { return {t}; }
Radius horizon_radius(double c, double p, int64_t steps) { return {std::make_shared<HorizonRadius>(c, p, steps)}; }
Radius power_radius(double t) { return {std::make_shared<PowerRadius>(t)}; }
Radius smooth_radius(double l0, double l1) { return {std::make_shared<SmoothRadius>(l0, l1, 0)}; }
Radius relative_noise_radius(double l0, double l1, double zeta) {
  return {std::make_shared<SmoothRadius>(l0, l1, zeta)};
}
Radius steepest_radius(double eta) { return {std::make_shared<SteepestRadius>(eta)}; }

Radius make_radius(std::string_view name) {
  const Spec spec = parse_spec(name, "radius");
  std::vector<double> numbers;
  for (const auto& argument : spec.arguments) numbers.push_back(parse_number(argument, "radius"));
  if (spec.name == "horizon" && numbers.size() == 3) {
    return horizon_radius(numbers[0], numbers[1], parse_integer(spec.arguments[2], "radius"));
  }
  if (spec.name == "power" && numbers.size() == 1) return power_radius(numbers[0]);
  if (spec.name == "steepest" && numbers.size() == 1) return steepest_radius(numbers[0]);
  if (spec.name == "smooth" && numbers.size() == 2) return smooth_radius(numbers[0], numbers[1]);
  if (spec.name == "relative_noise" && numbers.size() == 3) {
    return relative_noise_radius(numbers[0], numbers[1], numbers[2]);
  }
  if (numbers.empty() && spec.name.find_first_not_of("+-.0123456789eE") == std::string::npos) {
    return constant_radius(parse_number(spec.name, "radius"));
  }
  throw InputError(join("radius: unknown rule '", name,
                        "'; allowed are a number, power(T), smooth(L0,L1), relative_noise(L0,L1,ZETA), steepest(ETA), "
                        "horizon(C,P,STEPS)"));
}

}  // namespace gluon
