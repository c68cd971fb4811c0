#include "gluon/theory/lemma.h"

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/theory/stochastic.h"

namespace gluon::theory {
namespace {

void check_sums(double t, double iterations) {
  GLUON_CHECK(std::isfinite(t) && t > 0, "momentum sums: t must be > 0, got ", t);
  GLUON_CHECK(iterations >= 1, "momentum sums: K must be >= 1, got ", iterations);
}

void check_decayed(int64_t a, int64_t b, double p, double q) {
  GLUON_CHECK(q > 0 && q < 1 && p >= q, "decayed sum: 0 < q < 1 and p >= q are needed, got p = ", p,
              ", q = ", q);
  GLUON_CHECK(a >= 2 && a <= b, "decayed sum: 2 <= a <= b is needed, got a = ", a, ", b = ", b);
}

}  // namespace

MomentumSums momentum_sums_bound(double t, double iterations) {
  check_sums(t, iterations);
  const double log_k = std::log(iterations);
  const double drift = t * t * (kDriftConstant + kDriftLog * log_k);
  return {.noise = t * (kNoiseConstant + kNoiseLog * log_k), .drift = drift, .drift_needed = drift};
}

MomentumSums momentum_sums(double t, int64_t iterations) {
  check_sums(t, static_cast<double>(iterations));
  MomentumSums sums;
  MomentumSums carried;  // the inner sums of step k: squares of the noise, both drifts
  for (int64_t k = 0; k < iterations; ++k) {
    const double beta = theorem3_beta(k), radius = theorem3_radius(t, k);
    const double last_radius = k > 0 ? theorem3_radius(t, k - 1) : 0;
    carried.noise = beta * beta * carried.noise + (1 - beta) * (1 - beta);
    carried.drift = beta * (carried.drift + radius);
    carried.drift_needed = beta * (carried.drift_needed + last_radius);
    sums.noise += radius * std::sqrt(carried.noise);
    sums.drift += radius * carried.drift;
    sums.drift_needed += radius * carried.drift_needed;
  }
  return sums;
}

double decayed_sum(int64_t a, int64_t b, double p, double q) {
  check_decayed(a, b, p, q);
  double sum = 0, product = 1;
  for (int64_t k = a - 1; k < b; ++k) {
    const double x = static_cast<double>(k) + 1;
    product *= 1 - std::pow(x, -q);
    sum += std::pow(x, -p) * product;
  }
  return sum;
}

double decayed_sum_bound(int64_t a, double p, double q) {
  check_decayed(a, a, p, q);
  const double x = static_cast<double>(a);
  return std::pow(x - 1, q - p) * std::exp((std::pow(x, 1 - q) - std::pow(x - 1, 1 - q)) / (1 - q));
}

}  // namespace gluon::theory
