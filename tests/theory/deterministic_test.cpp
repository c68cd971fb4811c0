#include "gluon/theory/deterministic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gluon/radius/radius.h"
#include "gluon/theory/stochastic.h"
#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

Constants two_layers(double l0a, double l1a, double l0b, double l1b, double gap = 3) {
  return {.layers = {{.l0 = l0a, .l1 = l1a}, {.l0 = l0b, .l1 = l1b}}, .initial_gap = gap};
}

const Constants kConstants = two_layers(2, 1, 1, 2);
const Constants kWithoutL1 = two_layers(2, 0, 1, 0);

TEST(Theorem1Count, MatchesTheFormula) {
  EXPECT_EQ(theorem1(kConstants).iterations(0.5), 72 + 24);  // 2*3*3/0.25 + 2*3*2/0.5
  EXPECT_EQ(theorem1(kConstants).weights, (std::vector<double>{1, 1}));
  // h = 2 / (1 + 1/2) = 4/3, h^2 (2/1 + 1/4) = 4: 2*3*4/0.25 + 2*3*(4/3)/0.5
  EXPECT_EQ(theorem1_weighted(kConstants).iterations(0.5), 96 + 16);
  EXPECT_EQ(theorem1_weighted(kConstants).weights, (std::vector<double>{4.0 / 3, 2.0 / 3}));
}

TEST(Theorem1Count, RoundingDoesNotCostAnIteration) {
  const Constants one{.layers = {{.l0 = 1, .l1 = 0}}, .initial_gap = 1};
  EXPECT_EQ(theorem1(one).iterations(0.1), 200);  // 2 / 0.1 / 0.1 is 200.00000000000003 or so
  EXPECT_EQ(theorem1(one).iterations(0.3), 23);   // 22.2
}

TEST(Theorem1Count, WithoutL1IsTheClassicalRate) {
  for (const double eps : {1.0, 0.25, 0.125}) {
    EXPECT_EQ(theorem1(kWithoutL1).iterations(eps), 2 * 3 * 3 / (eps * eps));  // 2 L Delta0 / eps^2
  }
}

TEST(Theorem1Count, WithoutL0IsLinearInOneOverEps) {
  const Constants constants = two_layers(0, 1, 0, 4);
  EXPECT_EQ(theorem1(constants).iterations(0.5), 48);                            // 2*3*4/0.5
  EXPECT_NEAR(theorem1_weighted(constants).bound(10), 2 * 3 * 1.6 / 10, 1e-12);  // h = 1.6 <= max L1
}

TEST(Theorem1Count, AtLeastOneIterateIsNeeded) {
  EXPECT_EQ(theorem1(two_layers(2, 1, 1, 2, 0)).iterations(0.5), 1);
  EXPECT_EQ(theorem1(kConstants).iterations(1e9), 1);
}

// The remark after theorem 1 says the opposite; see the header.
TEST(Theorem1Count, WeightedFirstTermIsSmallerWhenLargeL0ComeWithLargeL1) {
  EXPECT_DOUBLE_EQ(weighted_rate(two_layers(2, 1, 1, 2), "").a, 4);
  EXPECT_DOUBLE_EQ(weighted_rate(two_layers(2, 2, 1, 1), "").a, 8.0 / 3);
  EXPECT_DOUBLE_EQ(plain_rate(two_layers(2, 1, 1, 2)).a, 3);
}

TEST(PlCount, MatchesTheFormula) {
  // 3*3/(0.5*0.5) + 3*2*sqrt(2/(0.5*0.5)) = 36 + 16.97
  EXPECT_EQ(theorem_pl(kConstants, 0.5).iterations(0.5), 53);
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(0.5), 8);  // 4 log 6 = 7.17
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(3), 0);    // already there: no step
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(5), 0);
  EXPECT_TRUE(theorem_pl(kConstants, 0.5).weights.empty());
}

TEST(EveryGuarantee, BoundIsTheInverseOfTheCount) {
  std::vector<Guarantee> all = {theorem1(kConstants),        theorem1_weighted(kConstants),
                                theorem_pl(kConstants, 0.3), theorem_pl_without_l1(kWithoutL1, 0.3),
                                theorem2(kConstants, 0.4),   theorem2_weighted(kConstants, 0.4),
                                theorem3(kConstants, 0.2)};
  for (const Guarantee& guarantee : all) {
    for (const double eps : {0.9, 0.31, 0.07}) {
      const double count = guarantee.iterations(eps);
      EXPECT_LE(guarantee.bound(count), eps * (1 + 1e-12)) << guarantee.theorem << " eps " << eps;
      EXPECT_GT(guarantee.bound(count - 1), eps * (1 - 1e-12)) << guarantee.theorem << " eps " << eps;
    }
    EXPECT_NE(guarantee.formula.find("K = "), std::string::npos) << guarantee.theorem;
    EXPECT_NE(guarantee.bound_formula.find("eps = "), std::string::npos) << guarantee.theorem;
  }
}

TEST(EveryGuarantee, RadiiAreNamesOfRadiusRules) {
  for (const Guarantee& guarantee : {theorem1(kConstants), theorem2(kConstants, 0.25), theorem3(kConstants, 1)}) {
    ASSERT_EQ(guarantee.radii.size(), 2U);
    for (const std::string& radius : guarantee.radii) EXPECT_EQ(make_radius(radius)->name(), radius);
  }
  EXPECT_EQ(theorem1(kConstants).largest_radii, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(theorem1(kWithoutL1).largest_radii[0], std::numeric_limits<double>::infinity());
}

TEST(Theorem1Radius, MatchesTheFormula) {
  EXPECT_DOUBLE_EQ(theorem1_radius({.l0 = 2, .l1 = 1}, 3), 0.6);
  EXPECT_EQ(theorem1_radius({.l0 = 0, .l1 = 1}, 0), 0);
}

TEST(TheoryInput, Errors) {
  EXPECT_INPUT_ERROR(theorem1({}), "theorem 1: expected L0 and L1 of at least one layer, got none");
  EXPECT_INPUT_ERROR(theorem1(two_layers(2, 1, 1, 2, -1)), "theorem 1: Delta0 must be >= 0, got -1");
  EXPECT_INPUT_ERROR(theorem1(two_layers(2, 1, -1, 2)),
                     "L0 and L1 must be >= 0 and not both 0, got L0 = -1, L1 = 2 for layer 2");
  EXPECT_INPUT_ERROR(theorem1(two_layers(0, 0, 1, 2)), "got L0 = 0, L1 = 0 for layer 1");
  EXPECT_INPUT_ERROR(theorem1(kConstants).iterations(0), "theorem 1: eps must be > 0, got 0");
  EXPECT_INPUT_ERROR(theorem1(kConstants).iterations(NAN), "theorem 1: eps must be > 0, got nan");
  EXPECT_INPUT_ERROR(theorem1(kConstants).iterations(1e-200), "K overflows double for eps = 1e-200");
  EXPECT_INPUT_ERROR(theorem1_weighted(two_layers(2, 1, 1, 0)),
                     "the weights 1 / L1 need L1 > 0 in every layer, got L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(theorem_pl(kConstants, 0), "PL theorem: mu must be > 0, got 0");
  EXPECT_INPUT_ERROR(theorem_pl(kConstants, INFINITY), "PL theorem: mu must be > 0, got inf");
  EXPECT_NO_THROW(theorem_pl_without_l1(kWithoutL1, 2));
  EXPECT_INPUT_ERROR(theorem_pl_without_l1(kConstants, 1), "L1 must be 0 in every layer, got 2");
  EXPECT_INPUT_ERROR(theorem_pl_without_l1(kWithoutL1, 2.5),
                     "mu is at most the largest L0 (2) for every function, got 2.5");
}

}  // namespace
}  // namespace gluon::theory
