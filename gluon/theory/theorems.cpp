#include "gluon/theory/theorems.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon::theory {
namespace {

// K(eps) = 2 Delta0 (a / eps^2 + b / eps) and its inverse: the rate of theorems 1 and 2, from
// K eps^2 / (2 (a + b eps)) <= Delta0.
struct QuadraticRate {
  double a = 0;
  double b = 0;
  double initial_gap = 0;

  double needed(double precision) const { return 2 * initial_gap * (a / precision + b) / precision; }

  // The positive root of eps^2 = 2 c (a + b eps) with c = Delta0 / K.
  double bound(double iterations) const {
    const double c = initial_gap / iterations;
    return c * b + std::sqrt(c * b * c * b + 2 * c * a);
  }
};

// (a + b log K) / K^(1/4), theorem 3's right side.
struct LogQuarterRate {
  double a = 0;
  double b = 0;

  double bound(double iterations) const { return (a + b * std::log(iterations)) / std::pow(iterations, 0.25); }

  // The smallest whole K with bound(K) <= precision. The bound grows up to log K = 4 - a/b and falls after that, so
  // unless K = 1 will do, it is above the precision up to K: doubling, then bisection.
  double needed(double precision) const {
    if (bound(1) <= precision) return 1;
    double low = 1, high = 2;
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

template <typename Rate> void set_rate(const Rate& rate, Guarantee& result) {
  result.needed = [rate](double precision) { return rate.needed(precision); };
  result.bound = [rate](double iterations) { return rate.bound(iterations); };
}

// The radii of theorem 2; without zeta those of theorem 1, which the PL theorems have too.
void set_radii(const Constants& constants, std::optional<double> zeta, Guarantee& result) {
  const double z = zeta.value_or(0);
  for (const auto& [l0, l1, t, noise_factor, name] : constants.layers) {
    result.radii.push_back(zeta ? spec_text("relative_noise", {l0, l1, z}) : spec_text("smooth", {l0, l1}));
    result.largest_radii.push_back((1 - z) / ((1 + z) * l1));
  }
}

// The rate of theorem 1: a = sum(L0), b = max(L1).
QuadraticRate plain_rate(const Constants& constants) {
  return {.a = constants.sum_l0(), .b = constants.max_l1(), .initial_gap = constants.initial_gap};
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

enum class Weights { kOne, kInverseL1 };

// Theorem 2, or without zeta theorem 1: `text` with its radii, weights and rate.
Guarantee with_gradient_rate(const Constants& constants, std::optional<double> zeta, Weights weights, Guarantee text) {
  const double z = zeta.value_or(0);
  constants.validate(text.theorem);
  GLUON_CHECK(z >= 0 && z < 1, text.theorem, ": zeta must be in [0, 1), got ", z);
  set_radii(constants, zeta, text);
  QuadraticRate rate = plain_rate(constants);
  text.weights.assign(constants.layers.size(), 1);
  if (weights == Weights::kInverseL1) {
    const double h = harmonic_mean_l1(constants, text.theorem);
    double sum = 0;
    for (const LayerConstants& layer : constants.layers) sum += layer.l0 / (layer.l1 * layer.l1);
    rate.a = h * h * sum;
    rate.b = h;
    std::transform(constants.layers.begin(), constants.layers.end(), text.weights.begin(),
                   [h](const LayerConstants& layer) { return h / layer.l1; });
  }
  rate.a /= (1 - z) * (1 - z);
  rate.b *= (1 + z) / ((1 - z) * (1 - z));
  set_rate(rate, text);
  return text;
}

// Either PL theorem, without its rate.
Guarantee with_smooth_radii(const Constants& constants, double mu, Guarantee text) {
  constants.validate(text.theorem);
  GLUON_CHECK(std::isfinite(mu) && mu > 0, text.theorem, ": mu must be > 0 and finite, got ", mu);
  set_radii(constants, std::nullopt, text);
  return text;
}

// The paper's second technical lemma: the noise and the drift that the momentum carries add up to at most
// t (kNoise + kNoiseLog log K) and t^2 (kDrift + kDriftLog log K) in K steps.
constexpr double kNoise = 3.5;
constexpr double kNoiseLog = std::numbers::sqrt2 * std::numbers::e;
constexpr double kDrift = 21;
constexpr double kDriftLog = 7;

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

// Theorem 3's K for sum_i E|grad_i f|* <= eps; none where sigma or a t is missing, or K overflows.
std::optional<double> theorem3_iterations(const Constants& constants, std::optional<double> sigma, double precision) {
  if (!sigma) return std::nullopt;
  try {
    const Guarantee guarantee = theorem3(constants, *sigma);
    return guarantee.iterations(precision * std::ranges::min(guarantee.weights));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

double theorem1_radius(const LayerConstants& layer, double gradient_dual_norm) {
  return theorem2_radius(layer, 0, gradient_dual_norm);
}

double theorem2_radius(const LayerConstants& layer, double zeta, double gradient_dual_norm) {
  if (gradient_dual_norm == 0) return 0;
  return (1 - zeta) * gradient_dual_norm / (layer.l0 + (1 + zeta) * layer.l1 * gradient_dual_norm);
}

double theorem3_beta(int64_t step) { return 1 - 1 / std::sqrt(static_cast<double>(step) + 1); }
double theorem3_radius(double t, int64_t step) { return t * std::pow(static_cast<double>(step) + 1, -0.75); }
double theorem3_largest_t(double l1) { return 1 / (12 * l1); }

Guarantee theorem1(const Constants& constants) {
  return with_gradient_rate(constants, std::nullopt, Weights::kOne,
                            {.theorem = "theorem 1",
                             .promise = "min over k < K of sum_i |grad_i f(X_k)|* <= eps",
                             .formula = "K = ceil(2 Delta0 sum(L0) / eps^2 + 2 Delta0 max(L1) / eps)",
                             .bound_formula = "eps = c max(L1) + sqrt((c max(L1))^2 + 2 c sum(L0)), c = Delta0 / K"});
}

Guarantee theorem1_weighted(const Constants& constants) {
  return with_gradient_rate(
      constants, std::nullopt, Weights::kInverseL1,
      {.theorem = "theorem 1, weighted",
       .promise = "min over k < K of sum_i (h / L1_i) |grad_i f(X_k)|* <= eps, h = p / sum(1 / L1)",
       .formula = "K = ceil(2 Delta0 h^2 sum(L0 / L1^2) / eps^2 + 2 Delta0 h / eps)",
       .bound_formula = "eps = c h + sqrt((c h)^2 + 2 c h^2 sum(L0 / L1^2)), c = Delta0 / K"});
}

Guarantee theorem2(const Constants& constants, double zeta) {
  return with_gradient_rate(
      constants, zeta, Weights::kOne,
      {.theorem = "theorem 2",
       .promise = "min over k < K of sum_i E|grad_i f(X_k)|* <= eps",
       .formula = "K = ceil(2 Delta0 sum(L0) / ((1-zeta)^2 eps^2) + 2 Delta0 (1+zeta) max(L1) / ((1-zeta)^2 eps))",
       .bound_formula =
           "eps = c (1+zeta) max(L1) + sqrt((c (1+zeta) max(L1))^2 + 2 c sum(L0)), c = Delta0 / ((1-zeta)^2 K)"});
}

Guarantee theorem2_weighted(const Constants& constants, double zeta) {
  return with_gradient_rate(
      constants, zeta, Weights::kInverseL1,
      {.theorem = "theorem 2, weighted",
       .promise = "min over k < K of sum_i (h / L1_i) E|grad_i f(X_k)|* <= eps, h = p / sum(1 / L1)",
       .formula = "K = ceil(2 Delta0 h^2 sum(L0 / L1^2) / ((1-zeta)^2 eps^2) + 2 Delta0 (1+zeta) h / ((1-zeta)^2 eps))",
       .bound_formula =
           "eps = c (1+zeta) h + sqrt((c (1+zeta) h)^2 + 2 c h^2 sum(L0 / L1^2)), c = Delta0 / ((1-zeta)^2 K)"});
}

// Theorem 1's argument with sum_i |g_i|* >= sqrt(2 mu (f - inf f)) in place of eps.
Guarantee theorem_pl(const Constants& constants, double mu) {
  Guarantee result = with_smooth_radii(
      constants, mu,
      {.theorem = "PL theorem",
       .promise = "min over k < K of f(X_k) - inf f <= eps",
       .formula = "K = ceil(Delta0 sum(L0) / (mu eps) + Delta0 max(L1) sqrt(2 / (mu eps)))",
       .bound_formula = "eps = (c max(L1) + sqrt((c max(L1))^2 + 2 c sum(L0)))^2 / (2 mu), c = Delta0 / K"});
  const QuadraticRate rate = plain_rate(constants);
  result.needed = [rate, mu](double precision) { return rate.needed(std::sqrt(2 * mu * precision)); };
  result.bound = [rate, mu](double iterations) {
    const double gradient = rate.bound(iterations);
    return gradient * gradient / (2 * mu);
  };
  return result;
}

Guarantee theorem_pl_without_l1(const Constants& constants, double mu) {
  Guarantee result = with_smooth_radii(constants, mu,
                                       {.theorem = "PL theorem with L1 = 0",
                                        .promise = "f(X_K) - inf f <= eps",
                                        .formula = "K = ceil((max(L0) / mu) log(Delta0 / eps))",
                                        .bound_formula = "eps = Delta0 exp(-K mu / max(L0))",
                                        .counts_steps = true});
  GLUON_CHECK(constants.l1_is_zero(), result.theorem, ": L1 must be 0 in every layer, got ", constants.max_l1());
  // f(X_{k+1}) - inf f <= (1 - mu / max L0) (f(X_k) - inf f) cannot be negative.
  GLUON_CHECK(mu <= constants.max_l0(), result.theorem, ": mu is at most the largest L0 (", constants.max_l0(),
              ") for every function, got ", mu);
  const double gap = constants.initial_gap, condition = constants.max_l0() / mu;
  result.needed = [gap, condition](double precision) {
    return gap <= precision ? 0 : condition * std::log(gap / precision);
  };
  result.bound = [gap, condition](double iterations) { return gap * std::exp(-iterations / condition); };
  return result;
}

Guarantee theorem3(const Constants& constants, double sigma) {
  Guarantee result{.theorem = "theorem 3",
                   .promise = "min over k < K of sum_i t_i E|grad_i f(X_k)|* <= eps",
                   .momentum = "theorem3"};
  constants.validate(result.theorem);
  GLUON_CHECK(std::isfinite(sigma) && sigma >= 0, result.theorem, ": sigma must be >= 0 and finite, got ", sigma);
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
  }
  GLUON_CHECK(std::isfinite(rate.a) && std::isfinite(rate.b), result.theorem,
              ": the bound overflows double; give smaller t");
  result.weights = result.largest_radii = t;
  result.bound_formula = s == 1 ? "eps = K^(-1/4) (Delta0 + sum_i [c_i sigma t_i (7 + 2 sqrt(2) e log K) + "
                                  "L0_i t_i^2 (87/2 + 14 log K)])"
                                : "eps = K^(-1/4) (2 Delta0 + sum_i [2 c_i sigma t_i (7 + 2 sqrt(2) e log K) + "
                                  "L0_i t_i^2 (87 + 28 log K)])";
  result.formula = "K = the smallest with " + result.bound_formula;
  set_rate(rate, result);
  return result;
}

std::vector<TableRow> table1(const Constants& constants, NoiseKind noise, double precision,
                             std::optional<double> sigma) {
  constants.validate("table 1");
  GLUON_CHECK(!sigma || (std::isfinite(*sigma) && *sigma >= 0), "table 1: sigma must be >= 0 and finite, got ", *sigma);
  std::vector<TableRow> rows = {
      {"Kovalev 2025, theorem 1", false, false, "K^(-1/2)", "const ~ K^(-1/2)", "-"},
      {"Kovalev 2025, theorem 2", true, false, "K^(-1/4)", "const ~ K^(-3/4)", "const ~ K^(-1/2)"},
      {"Li 2025, theorem 2.1", true, false, "K^(-1/4)", "const ~ K^(-3/4)", "const ~ K^(-1/2)"},
      {"Pethick 2025, lemma 5.4", true, false, "K^(-1/4)", "const ~ K^(-3/4)", "~ k^(-1/2)"},
      {"NEW: theorem 1", false, true, "K^(-1/2)", "adaptive", "-"},
      {"NEW: theorem 3", true, true, "K^(-1/4)", "~ k^(-3/4)", "~ k^(-1/2)"},
  };
  const double factor = constants.l1_is_zero() ? 6 * constants.sum_l0() * constants.initial_gap : 0;
  const Guarantee known{.theorem = "table 1", .needed = [factor](double eps) { return factor / eps / eps; }};
  const double iterations = known.iterations(precision);
  if (noise == NoiseKind::kNone) sigma = 0;
  for (TableRow& row : rows) {
    if (!row.layer_wise && !constants.l1_is_zero()) {
      row.obstacle = "needs L1 = 0 in every layer";
    } else if (noise != NoiseKind::kNone && !row.stochastic) {
      row.obstacle = "needs exact gradients";
    } else if (noise == NoiseKind::kRelative) {
      row.obstacle = "needs bounded variance";
    } else if (row.source.starts_with("Li") && constants.layers.size() > 1) {
      row.obstacle = "for one layer only";
    } else if (row.layer_wise) {
      row.iterations =
          row.stochastic ? theorem3_iterations(constants, sigma, precision) : theorem1(constants).iterations(precision);
    } else if (noise == NoiseKind::kNone) {
      row.iterations = iterations;
    }
  }
  return rows;
}

}  // namespace gluon::theory
