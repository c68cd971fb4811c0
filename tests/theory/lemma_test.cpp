#include "gluon/theory/lemma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gluon/theory/stochastic.h"
#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

TEST(MomentumSums, TwoStepsByHand) {
  // beta_1 = 1 - 1/sqrt(2), t_1 = 2^(-3/4); the noise of step 1 is sqrt(beta_1^2 + 1/2).
  const MomentumSums one = momentum_sums(1, 1), two = momentum_sums(1, 2);
  EXPECT_EQ(one.noise, 1);
  EXPECT_EQ(one.drift, 0);
  EXPECT_EQ(one.drift_needed, 0);
  EXPECT_NEAR(two.noise, 1.455090, 1e-5);
  EXPECT_NEAR(two.drift, 0.103553, 1e-6);
  EXPECT_NEAR(two.drift_needed, 0.174155, 1e-6);
}

TEST(MomentumSums, AreTheDoubleSumsOfTheLemma) {
  const int64_t iterations = 30;
  const double t = 0.7;
  MomentumSums plain;
  for (int64_t k = 0; k < iterations; ++k) {
    double noise = 0, drift = 0, needed = 0;
    for (int64_t j = 0; j <= k; ++j) {
      double after = 1;  // beta_{j+1:k}
      for (int64_t i = j + 1; i <= k; ++i) after *= theorem3_beta(i);
      noise += std::pow((1 - theorem3_beta(j)) * after, 2);
      if (j == 0) continue;
      drift += theorem3_radius(t, j) * theorem3_beta(j) * after;
      needed += theorem3_radius(t, j - 1) * theorem3_beta(j) * after;
    }
    plain.noise += theorem3_radius(t, k) * std::sqrt(noise);
    plain.drift += theorem3_radius(t, k) * drift;
    plain.drift_needed += theorem3_radius(t, k) * needed;
  }
  const MomentumSums fast = momentum_sums(t, iterations);
  EXPECT_NEAR(fast.noise, plain.noise, 1e-12);
  EXPECT_NEAR(fast.drift, plain.drift, 1e-12);
  EXPECT_NEAR(fast.drift_needed, plain.drift_needed, 1e-12);
}

TEST(MomentumSums, StayBelowTheLemma) {
  for (const double t : {0.01, 1.0, 30.0}) {
    for (const int64_t iterations : {1, 2, 3, 5, 10, 100, 1000, 300000}) {
      const MomentumSums sums = momentum_sums(t, iterations);
      const MomentumSums bound = momentum_sums_bound(t, static_cast<double>(iterations));
      EXPECT_LE(sums.noise, bound.noise) << iterations;
      EXPECT_LE(sums.drift, bound.drift) << iterations;
      EXPECT_LE(sums.drift_needed, bound.drift_needed / 10) << iterations;  // the index the proof needs
    }
  }
}

TEST(DecayedSum, StaysBelowTheLemma) {
  for (const int64_t a : {2, 3, 7, 50}) {
    for (const double q : {0.3, 0.5, 0.9}) {
      for (const double p : {q, 1.0, 1.5}) {
        for (const int64_t b : {a, a + 1, a + 2000}) {
          EXPECT_LE(decayed_sum(a, b, p, q), decayed_sum_bound(a, p, q))
              << a << ' ' << b << ' ' << p << ' ' << q;
        }
      }
    }
  }
  EXPECT_DOUBLE_EQ(decayed_sum(2, 2, 1, 0.5), (1 - 1 / std::sqrt(2)) / 2);
  EXPECT_DOUBLE_EQ(decayed_sum_bound(2, 1, 0.5), std::exp(2 * (std::sqrt(2) - 1)));
}

// Theorem 3 absorbs C L1 t_i sum t_k E|grad f| on its left side, with C L1 t_i <= 1/2 for t_i = 1/(12 L1), so
// C <= 6. C = 2 max_j (t_{j-1} / t_j) sum_{k>=j} (k+1)^(-3/4) beta_{j:k} + 1/2 with the right index.
TEST(DecayedSum, LeavesTheorem3ItsFactor) {
  double largest = 0;
  for (int64_t j = 1; j < 60; ++j) {
    const double ratio = theorem3_radius(1, j - 1) / theorem3_radius(1, j);
    largest = std::max(largest, ratio * decayed_sum(j + 1, j + 3000, 0.75, 0.5));
  }
  EXPECT_NEAR(2 * largest + 0.5, 1.42, 0.01);
  // From there on the first lemma itself, which decreases in j, is enough.
  EXPECT_LE(std::pow(61.0 / 60, 0.75) * decayed_sum_bound(61, 0.75, 0.5), largest);
}

TEST(LemmaInput, ErrorsSayWhatWasWrong) {
  EXPECT_INPUT_ERROR(momentum_sums(0, 5), "momentum sums: t must be > 0, got 0");
  EXPECT_INPUT_ERROR(momentum_sums_bound(1, 0), "momentum sums: K must be >= 1, got 0");
  EXPECT_INPUT_ERROR(decayed_sum(2, 5, 0.2, 0.5), "0 < q < 1 and p >= q are needed, got p = 0.2, q = 0.5");
  EXPECT_INPUT_ERROR(decayed_sum(1, 5, 1, 0.5), "2 <= a <= b is needed, got a = 1, b = 5");
  EXPECT_INPUT_ERROR(decayed_sum_bound(1, 1, 0.5), "2 <= a <= b is needed, got a = 1");
}

}  // namespace
}  // namespace gluon::theory
