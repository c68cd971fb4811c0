#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/theory/momentum_sums.h"

namespace gluon::theory {
namespace {

TEST(MomentumSums, AgreeWithTheDoubleSums) {
  const int64_t iterations = 30;
  const double t = 0.7;
  MomentumSums plain;
  for (int64_t k = 0; k < iterations; ++k) {
    double noise = 0, drift = 0;
    for (int64_t j = 0; j <= k; ++j) {
      double after = 1;  // beta_{j+1:k}
      for (int64_t i = j + 1; i <= k; ++i) after *= theorem3_beta(i);
      noise += std::pow((1 - theorem3_beta(j)) * after, 2);
      if (j > 0) drift += theorem3_radius(t, j - 1) * theorem3_beta(j) * after;
    }
    plain.noise += theorem3_radius(t, k) * std::sqrt(noise);
    plain.drift += theorem3_radius(t, k) * drift;
  }
  const MomentumSums fast = momentum_sums(t, iterations);
  EXPECT_NEAR(fast.noise, plain.noise, 1e-12);
  EXPECT_NEAR(fast.drift, plain.drift, 1e-12);
}

// With Delta0 = 0 and one of sigma and L0 (almost) 0, theorem 3's bound is K^(-1/4) times twice one of the sums.
TEST(MomentumSums, StayBelowTheBoundOfTheorem3) {
  for (const double t : {0.01, 1.0, 30.0}) {
    const Guarantee noise = theorem3({.layers = {{.l0 = 1e-300, .t = t}}}, 1);
    const Guarantee drift = theorem3({.layers = {{.l0 = 1, .t = t}}}, 0);
    for (const int64_t iterations : {1, 2, 3, 5, 10, 100, 1000, 300000}) {
      const auto count = static_cast<double>(iterations);
      const MomentumSums sums = momentum_sums(t, iterations);
      EXPECT_LE(2 * sums.noise, noise.bound(count) * std::pow(count, 0.25)) << iterations;
      EXPECT_LE(2 * sums.drift, drift.bound(count) * std::pow(count, 0.25) / 10) << iterations;
    }
  }
}

// Theorem 3 absorbs C L1 t_i sum t_k E|grad f| on its left side, with C L1 t_i <= 1/2 for t_i = 1/(12 L1), so
// C <= 6 is needed. C = 2 max_j (t_{j-1} / t_j) sum_{k>=j} (k+1)^(-3/4) beta_{j:k} + 1/2.
TEST(MomentumSums, LeaveRoomForTheL1Term) {
  double largest = 0;
  for (int64_t j = 1; j < 60; ++j) {
    double sum = 0, product = 1;
    for (int64_t k = j; k < j + 3000; ++k) {
      product *= theorem3_beta(k);
      sum += theorem3_radius(1, k) * product;
    }
    largest = std::max(largest, sum * theorem3_radius(1, j - 1) / theorem3_radius(1, j));
  }
  EXPECT_NEAR(2 * largest + 0.5, 1.42, 0.01);
}

}  // namespace
}  // namespace gluon::theory
