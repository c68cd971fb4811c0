#include "gluon/theory/stochastic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gluon/momentum/momentum.h"
#include "gluon/theory/deterministic.h"
#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

const Constants kConstants{.layers = {{.l0 = 2, .l1 = 1}, {.l0 = 1, .l1 = 2}}, .initial_gap = 3};

TEST(Theorem2Count, MatchesTheFormula) {
  // (1-z)^2 = 1/4: 2*3*3/(0.25*0.25) + 2*3*1.5*2/(0.25*0.5)
  EXPECT_EQ(theorem2(kConstants, 0.5).iterations(0.5), 288 + 144);
  // h = 4/3 and h^2 sum(L0/L1^2) = 4: 2*3*4/(0.25*0.25) + 2*3*1.5*(4/3)/(0.25*0.5)
  EXPECT_EQ(theorem2_weighted(kConstants, 0.5).iterations(0.5), 384 + 96);
}

TEST(Theorem2Count, WithoutNoiseIsTheorem1) {
  for (const double eps : {1.0, 0.3, 0.01}) {
    EXPECT_EQ(theorem2(kConstants, 0).iterations(eps), theorem1(kConstants).iterations(eps));
    EXPECT_EQ(theorem2_weighted(kConstants, 0).iterations(eps), theorem1_weighted(kConstants).iterations(eps));
  }
  EXPECT_EQ(theorem2_radius(kConstants.layers[0], 0, 3), theorem1_radius(kConstants.layers[0], 3));
}

TEST(Theorem2Radius, MatchesTheFormula) {
  EXPECT_DOUBLE_EQ(theorem2_radius({.l0 = 2, .l1 = 1}, 0.5, 4), 0.5 * 4 / (2 + 1.5 * 4));
  EXPECT_EQ(theorem2_radius({.l0 = 0, .l1 = 1}, 0.5, 0), 0);
  EXPECT_DOUBLE_EQ(theorem2(kConstants, 0.5).largest_radii[1], 0.5 / (1.5 * 2));
}

TEST(Theorem3Bound, MatchesTheFormulaWithoutL1) {
  const Constants constants{.layers = {{.l0 = 2, .l1 = 0, .t = 0.5}}, .initial_gap = 1};
  const Guarantee guarantee = theorem3(constants, 3);
  EXPECT_DOUBLE_EQ(guarantee.bound(1), 33.25);       // 1 + 3*0.5*7 + 2*0.25*43.5
  EXPECT_NEAR(guarantee.bound(16), 42.31677, 1e-5);  // (1 + 1.5 (7 + 21.31695) + 0.5 (43.5 + 38.81624)) / 2
  EXPECT_EQ(guarantee.weights, std::vector<double>{0.5});
  EXPECT_EQ(guarantee.momentum, "theorem3");
  EXPECT_EQ(guarantee.radii[0], "power(0.5)");
}

TEST(Theorem3Bound, MatchesTheFormulaWithL1) {
  // t = 1/(12 L1) = 1/2: 2 + 3/(6/6) * 7 + 2/(144/36) * 87
  const Constants constants{.layers = {{.l0 = 2, .l1 = 1.0 / 6}}, .initial_gap = 1};
  const Guarantee guarantee = theorem3(constants, 3);
  EXPECT_DOUBLE_EQ(guarantee.bound(1), 66.5);
  const double log_k = std::log(81.0);
  EXPECT_NEAR(guarantee.bound(81), (2 + 3 * (7 + 2 * std::sqrt(2 * std::exp(2)) * log_k) + 0.5 * (87 + 28 * log_k)) / 3,
              1e-9);
}

TEST(Theorem3Bound, NoiseFactorMultipliesSigma) {
  Constants constants{.layers = {{.l0 = 0, .l1 = 1}}, .initial_gap = 1};
  const double three_sigma = theorem3(constants, 3).bound(50);
  constants.layers[0].noise_factor = 3;
  EXPECT_DOUBLE_EQ(theorem3(constants, 1).bound(50), three_sigma);
}

// The bound rises before it falls; K is the first one that is low enough.
TEST(Theorem3Count, IsTheSmallestSufficient) {
  for (const double sigma : {0.0, 0.1, 5.0}) {
    const Guarantee guarantee = theorem3(kConstants, sigma);
    for (const double share : {1.5, 1.0, 0.9, 0.5}) {
      const double eps = share * guarantee.bound(1);
      double smallest = 1;
      while (guarantee.bound(smallest) > eps) ++smallest;
      EXPECT_EQ(guarantee.iterations(eps), smallest) << "sigma " << sigma << " share " << share;
    }
  }
}

TEST(Theorem3Count, FallsAsTheFourthPowerWithoutNoise) {
  const Constants constants{.layers = {{.l0 = 0, .l1 = 1}}, .initial_gap = 1};
  EXPECT_EQ(theorem3(constants, 0).iterations(0.2), 1e4);  // (2 / 0.2)^4
  EXPECT_EQ(theorem3(constants, 0).iterations(1), 16);
}

TEST(Theorem3Count, OverflowIsAnError) {
  const Constants tiny{.layers = {{.l0 = 1, .l1 = 1}, {.l0 = 0, .l1 = 1e-320}}, .initial_gap = 1};
  EXPECT_INPUT_ERROR(theorem3(tiny, 0), "theorem 3: 1 / (12 L1) overflows double; give t for layer 2");
  Constants given = tiny;
  given.layers[1].t = 1.0 / 12;
  EXPECT_EQ(theorem3(given, 0).weights[1], 1.0 / 12);
  const Constants large{.layers = {{.l0 = 1, .l1 = 1e-200}}, .initial_gap = 1};
  EXPECT_INPUT_ERROR(theorem3(large, 0), "theorem 3: the bound overflows double; give smaller t");
}

TEST(Theorem3Momentum, MatchesTheOptimizer) {
  for (const int64_t k : {0, 1, 2, 99, 12345}) {
    EXPECT_DOUBLE_EQ(theorem3_beta(k), Momentum::theorem3().beta(k));
  }
  EXPECT_EQ(theorem3_beta(0), 0);
  EXPECT_DOUBLE_EQ(theorem3_radius(0.5, 15), 0.0625);
  EXPECT_DOUBLE_EQ(theorem3_largest_t(2), 1.0 / 24);
}

TEST(StochasticInput, Errors) {
  EXPECT_INPUT_ERROR(theorem2(kConstants, 1), "theorem 2: zeta must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(theorem2_weighted(kConstants, -0.1), "theorem 2, weighted: zeta must be in [0, 1), got -0.1");
  EXPECT_INPUT_ERROR(theorem3(kConstants, -1), "theorem 3: sigma must be >= 0, got -1");
  EXPECT_INPUT_ERROR(theorem3(kConstants, INFINITY), "theorem 3: sigma must be >= 0, got inf");
  Constants constants = kConstants;
  constants.layers[1].t = 0.05;
  EXPECT_INPUT_ERROR(theorem3(constants, 1), "t must be at most 1 / (12 L1) = 0.0416667, got 0.05 for layer 2");
  constants.layers[1].t = -1;
  EXPECT_INPUT_ERROR(theorem3(constants, 1), "theorem 3: t must be > 0, got -1 for layer 2");
  constants.layers[1] = {.l0 = 1, .l1 = 0};
  EXPECT_INPUT_ERROR(theorem3(constants, 1), "theorem 3: L1 = 0 allows any t; give t for layer 2");
  constants.layers[1] = {.l0 = 1, .l1 = 1, .noise_factor = 0.5};
  EXPECT_INPUT_ERROR(theorem3(constants, 1), "the noise factor must be >= 1, got 0.5 for layer 2");
}

}  // namespace
}  // namespace gluon::theory
