#include "gluon/theory/stochastic.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/theory/deterministic.h"

namespace gluon::theory {
namespace {

Guarantee with_noisy_radii(const Constants& constants, double zeta, std::string theorem) {
  constants.validate(theorem);
  GLUON_CHECK(zeta >= 0 && zeta < 1, theorem, ": zeta must be in [0, 1), got ", zeta);
  Guarantee result;
  result.theorem = std::move(theorem);
  for (const LayerConstants& layer : constants.layers) {
    result.radii.push_back(spec_text("relative_noise", {layer.l0, layer.l1, zeta}));
    result.largest_radii.push_back((1 - zeta) / ((1 + zeta) * layer.l1));
  }
  return result;
}

QuadraticRate with_noise(QuadraticRate rate, double zeta) {
  rate.a /= (1 - zeta) * (1 - zeta);
  rate.b *= (1 + zeta) / ((1 - zeta) * (1 - zeta));
  return rate;
}

// The paper's second technical lemma: the noise and the drift that the momentum carries add up to at most
// t (kNoise + kNoiseLog log K) and t^2 (kDrift + kDriftLog log K) in K steps.
constexpr double kNoise = 3.5;
constexpr double kNoiseLog = std::numbers::sqrt2 * std::numbers::e;
constexpr double kDrift = 21;
constexpr double kDriftLog = 7;

// (a + b log K) / K^(1/4), theorem 3's right side.
struct LogQuarterRate {
  double a = 0;
  double b = 0;

  double bound(double iterations) const { return (a + b * std::log(iterations)) / std::pow(iterations, 0.25); }

  // The smallest whole K with bound(K) <= precision. The bound grows up to log K = 4 - a/b and falls after
  // that, so unless K = 1 will do, the answer is on the falling part: doubling, then bisection.
  double needed(double precision) const {
    if (bound(1) <= precision) return 1;
    double low = b > 0 ? std::max(1.0, std::floor(std::exp(4 - a / b))) : 1;
    double high = 2 * low;
    while (!(bound(high) <= precision)) {
      low = high;
      high *= 2;
      if (!std::isfinite(high)) return high;
    }
    while (high - low > 1) {
      const double middle = std::floor(low + (high - low) / 2);
      if (middle <= low || middle >= high) break;  // beyond 2^53 neighbours are further apart than 1
      (bound(middle) <= precision ? high : low) = middle;
    }
    return high;
  }
};

// Theorem 3's t_i, checked.
std::vector<double> chosen_t(const Constants& constants, std::string_view who) {
  std::vector<double> result;
  for (std::size_t i = 0; i < constants.layers.size(); ++i) {
    const LayerConstants& layer = constants.layers[i];
    const double most = theorem3_largest_t(layer.l1);
    GLUON_CHECK(layer.t || layer.l1 > 0, who, ": L1 = 0 allows any t; give t for ", constants.layer_text(i));
    const double t = layer.t.value_or(most);
    GLUON_CHECK(std::isfinite(t), who, ": 1 / (12 L1) overflows double; give t for ", constants.layer_text(i));
    GLUON_CHECK(t <= most * (1 + 1e-12), who, ": t must be at most 1 / (12 L1) = ", most, ", got ", t, " for ",
                constants.layer_text(i));
    result.push_back(t);
  }
  return result;
}

}  // namespace

double theorem2_radius(const LayerConstants& layer, double zeta, double gradient_dual_norm) {
  if (gradient_dual_norm == 0) return 0;
  return (1 - zeta) * gradient_dual_norm / (layer.l0 + (1 + zeta) * layer.l1 * gradient_dual_norm);
}

Guarantee theorem2(const Constants& constants, double zeta) {
  Guarantee result = with_noisy_radii(constants, zeta, "theorem 2");
  result.promise = "min over k < K of sum_i E|grad_i f(X_k)|* <= eps";
  result.formula = "K = ceil(2 Delta0 sum(L0) / ((1-zeta)^2 eps^2) + 2 Delta0 (1+zeta) max(L1) / ((1-zeta)^2 eps))";
  result.bound_formula =
      "eps = c (1+zeta) max(L1) + sqrt((c (1+zeta) max(L1))^2 + 2 c sum(L0)), c = Delta0 / ((1-zeta)^2 K)";
  result.weights = plain_weights(constants);
  result.set_rate(with_noise(plain_rate(constants), zeta));
  return result;
}

Guarantee theorem2_weighted(const Constants& constants, double zeta) {
  Guarantee result = with_noisy_radii(constants, zeta, "theorem 2, weighted");
  result.promise = "min over k < K of sum_i (h / L1_i) E|grad_i f(X_k)|* <= eps, h = p / sum(1 / L1)";
  result.formula =
      "K = ceil(2 Delta0 h^2 sum(L0 / L1^2) / ((1-zeta)^2 eps^2) + 2 Delta0 (1+zeta) h / ((1-zeta)^2 eps))";
  result.bound_formula =
      "eps = c (1+zeta) h + sqrt((c (1+zeta) h)^2 + 2 c h^2 sum(L0 / L1^2)), c = Delta0 / ((1-zeta)^2 K)";
  result.weights = weighted_weights(constants, result.theorem);
  result.set_rate(with_noise(weighted_rate(constants, result.theorem), zeta));
  return result;
}

double theorem3_beta(int64_t step) { return 1 - 1 / std::sqrt(static_cast<double>(step) + 1); }
double theorem3_radius(double t, int64_t step) { return t * std::pow(static_cast<double>(step) + 1, -0.75); }
double theorem3_largest_t(double l1) { return 1 / (12 * l1); }

Guarantee theorem3(const Constants& constants, double sigma) {
  Guarantee result;
  result.theorem = "theorem 3";
  constants.validate(result.theorem);
  GLUON_CHECK(std::isfinite(sigma) && sigma >= 0, result.theorem, ": sigma must be >= 0, got ", sigma);
  const std::vector<double> t = chosen_t(constants, result.theorem);
  const double s = constants.l1_is_zero() ? 1 : 2;
  LogQuarterRate rate{.a = s * constants.initial_gap, .b = 0};
  for (std::size_t i = 0; i < t.size(); ++i) {
    const LayerConstants& layer = constants.layers[i];
    const double noise = s * layer.noise_factor * sigma * t[i], drift = s * layer.l0 * t[i] * t[i];
    // Twice the lemma's sums, and L0 / 2 sum t_k^2 <= 3/2 L0 t^2 in addition to the second.
    rate.a += noise * 2 * kNoise + drift * (2 * kDrift + 1.5);
    rate.b += noise * 2 * kNoiseLog + drift * 2 * kDriftLog;
    result.radii.push_back(spec_text("power", {t[i]}));
    result.largest_radii.push_back(t[i]);
  }
  GLUON_CHECK(std::isfinite(rate.a) && std::isfinite(rate.b), result.theorem,
              ": the bound overflows double; give smaller t");
  result.weights = t;
  result.momentum = "theorem3";
  result.promise = "min over k < K of sum_i t_i E|grad_i f(X_k)|* <= eps";
  result.bound_formula = s == 1 ? "eps = K^(-1/4) (Delta0 + sum_i [c_i sigma t_i (7 + 2 sqrt(2) e log K) + "
                                  "L0_i t_i^2 (87/2 + 14 log K)])"
                                : "eps = K^(-1/4) (2 Delta0 + sum_i [2 c_i sigma t_i (7 + 2 sqrt(2) e log K) + "
                                  "L0_i t_i^2 (87 + 28 log K)])";
  result.formula = "K = the smallest with " + result.bound_formula;
  result.set_rate(rate);
  return result;
}

}  // namespace gluon::theory
