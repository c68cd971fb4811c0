#include "gluon/theory/deterministic.h"

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon::theory {
namespace {

void check_mu(std::string_view who, double mu) {
  GLUON_CHECK(std::isfinite(mu) && mu > 0, who, ": mu must be > 0, got ", mu);
}

// The harmonic mean of L1, p / sum(1 / L1_j).
double harmonic_mean_l1(const Constants& constants, std::string_view who) {
  double sum = 0;
  for (std::size_t i = 0; i < constants.layers.size(); ++i) {
    const double l1 = constants.layers[i].l1;
    GLUON_CHECK(l1 > 0, who, ": the weights 1 / L1 need L1 > 0 in every layer, got L1 = ", l1, " for ",
                constants.layer_text(i));
    sum += 1 / l1;
  }
  return static_cast<double>(constants.layers.size()) / sum;
}

// A guarantee with theorem 1's radii, which all four have.
Guarantee with_smooth_radii(const Constants& constants, std::string theorem) {
  constants.validate(theorem);
  Guarantee result;
  result.theorem = std::move(theorem);
  for (const LayerConstants& layer : constants.layers) {
    result.radii.push_back(spec_text("smooth", {layer.l0, layer.l1}));
    result.largest_radii.push_back(1 / layer.l1);
  }
  return result;
}

}  // namespace

double theorem1_radius(const LayerConstants& layer, double gradient_dual_norm) {
  if (gradient_dual_norm == 0) return 0;
  return gradient_dual_norm / (layer.l0 + layer.l1 * gradient_dual_norm);
}

double QuadraticRate::needed(double precision) const { return 2 * initial_gap * (a / precision + b) / precision; }

// The positive root of eps^2 = 2 c (a + b eps) with c = Delta0 / K.
double QuadraticRate::bound(double iterations) const {
  const double c = initial_gap / iterations;
  return c * b + std::sqrt(c * b * c * b + 2 * c * a);
}

QuadraticRate plain_rate(const Constants& constants) {
  return {.a = constants.sum_l0(), .b = constants.max_l1(), .initial_gap = constants.initial_gap};
}

QuadraticRate weighted_rate(const Constants& constants, std::string_view who) {
  const double h = harmonic_mean_l1(constants, who);
  double sum = 0;
  for (const LayerConstants& layer : constants.layers) sum += layer.l0 / (layer.l1 * layer.l1);
  return {.a = h * h * sum, .b = h, .initial_gap = constants.initial_gap};
}

std::vector<double> plain_weights(const Constants& constants) {
  return std::vector<double>(constants.layers.size(), 1.0);
}

std::vector<double> weighted_weights(const Constants& constants, std::string_view who) {
  const double h = harmonic_mean_l1(constants, who);
  std::vector<double> weights;
  for (const LayerConstants& layer : constants.layers) weights.push_back(h / layer.l1);
  return weights;
}

Guarantee theorem1(const Constants& constants) {
  Guarantee result = with_smooth_radii(constants, "theorem 1");
  result.promise = "min over k < K of sum_i |grad_i f(X_k)|* <= eps";
  result.formula = "K = ceil(2 Delta0 sum(L0) / eps^2 + 2 Delta0 max(L1) / eps)";
  result.bound_formula = "eps = c max(L1) + sqrt((c max(L1))^2 + 2 c sum(L0)), c = Delta0 / K";
  result.weights = plain_weights(constants);
  result.set_rate(plain_rate(constants));
  return result;
}

Guarantee theorem1_weighted(const Constants& constants) {
  Guarantee result = with_smooth_radii(constants, "theorem 1, weighted");
  result.promise = "min over k < K of sum_i (h / L1_i) |grad_i f(X_k)|* <= eps, h = p / sum(1 / L1)";
  result.formula = "K = ceil(2 Delta0 h^2 sum(L0 / L1^2) / eps^2 + 2 Delta0 h / eps)";
  result.bound_formula = "eps = c h + sqrt((c h)^2 + 2 c h^2 sum(L0 / L1^2)), c = Delta0 / K";
  result.weights = weighted_weights(constants, result.theorem);
  result.set_rate(weighted_rate(constants, result.theorem));
  return result;
}

// Theorem 1's argument with sum_i |g_i|* >= sqrt(2 mu (f - inf f)) in place of eps.
Guarantee theorem_pl(const Constants& constants, double mu) {
  Guarantee result = with_smooth_radii(constants, "PL theorem");
  check_mu(result.theorem, mu);
  result.promise = "min over k < K of f(X_k) - inf f <= eps";
  result.formula = "K = ceil(Delta0 sum(L0) / (mu eps) + Delta0 max(L1) sqrt(2 / (mu eps)))";
  result.bound_formula = "eps = (c max(L1) + sqrt((c max(L1))^2 + 2 c sum(L0)))^2 / (2 mu), c = Delta0 / K";
  const QuadraticRate rate = plain_rate(constants);
  result.needed = [rate, mu](double precision) { return rate.needed(std::sqrt(2 * mu * precision)); };
  result.bound = [rate, mu](double iterations) {
    const double gradient = rate.bound(iterations);
    return gradient * gradient / (2 * mu);
  };
  return result;
}

Guarantee theorem_pl_without_l1(const Constants& constants, double mu) {
  Guarantee result = with_smooth_radii(constants, "PL theorem with L1 = 0");
  check_mu(result.theorem, mu);
  GLUON_CHECK(constants.l1_is_zero(), result.theorem, ": L1 must be 0 in every layer, got ", constants.max_l1());
  // f(X_{k+1}) - inf f <= (1 - mu / max L0) (f(X_k) - inf f) cannot be negative.
  GLUON_CHECK(mu <= constants.max_l0(), result.theorem, ": mu is at most the largest L0 (", constants.max_l0(),
              ") for every function, got ", mu);
  result.promise = "f(X_K) - inf f <= eps";
  result.formula = "K = ceil((max(L0) / mu) log(Delta0 / eps))";
  result.bound_formula = "eps = Delta0 exp(-K mu / max(L0))";
  result.counts_steps = true;
  const double gap = constants.initial_gap, condition = constants.max_l0() / mu;
  result.needed = [gap, condition](double precision) {
    return gap <= precision ? 0 : condition * std::log(gap / precision);
  };
  result.bound = [gap, condition](double iterations) { return gap * std::exp(-iterations / condition); };
  return result;
}

}  // namespace gluon::theory
