#include "gluon/theory/theorems.h"

#include <cmath>
#include <limits>

#include "gluon/momentum/momentum.h"
#include "gluon/radius/radius.h"
#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

TEST(Constants, SumsAndMaxima) {
  const Constants constants{.layers = {{.l0 = 2, .l1 = 0}, {.l0 = 5, .l1 = 0}, {.l0 = 1, .l1 = 3}}};
  EXPECT_EQ(constants.sum_l0(), 8);
  EXPECT_EQ(constants.max_l0(), 5);
  EXPECT_EQ(constants.max_l1(), 3);
  EXPECT_FALSE(constants.l1_is_zero());
  EXPECT_TRUE((Constants{.layers = {{.l0 = 2}}}).l1_is_zero());
}

TEST(Constants, ErrorsNameTheLayer) {
  const auto validate = [](const LayerConstants& layer, double gap = 1) {
    Constants{.layers = {{.l0 = 1}, layer}, .initial_gap = gap}.validate("who");
  };
  EXPECT_NO_THROW(validate({.l0 = 0, .l1 = 1, .t = 0.5, .noise_factor = 2}, 0));
  EXPECT_INPUT_ERROR(Constants{}.validate("who"), "who: expected L0 and L1 of at least one layer, got none");
  EXPECT_INPUT_ERROR(validate({.l0 = 1}, NAN), "who: Delta0 must be >= 0 and finite, got nan");
  EXPECT_INPUT_ERROR(validate({.l0 = 1}, -1), "who: Delta0 must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(validate({.l0 = 1, .l1 = -2}), "not both 0, got L0 = 1, L1 = -2 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = INFINITY}), "got L0 = inf, L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({}), "who: L0 and L1 must be >= 0 and not both 0, got L0 = 0, L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = 1, .t = 0}), "who: t must be > 0 and finite, got 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = 1, .noise_factor = 0.5}),
                     "who: the noise factor must be >= 1, got 0.5 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = -1, .name = "head"}), "got L0 = -1, L1 = 0 for layer 'head'");
}

const Guarantee kInverse{.theorem = "a theorem", .needed = [](double precision) { return 6 / precision; }};

TEST(Guarantee, IterationsAreTheCeiling) {
  EXPECT_EQ(kInverse.iterations(4), 2);
  EXPECT_EQ(kInverse.iterations(3), 2);
  EXPECT_EQ(kInverse.iterations(0.1), 60);  // 6 / 0.1 is not a whole number in binary
  EXPECT_EQ(kInverse.iterations(6 / 1e13), 1e13);
}

TEST(Guarantee, IterationsAreAtLeastOneUnlessStepsAreCounted) {
  Guarantee guarantee{.theorem = "a theorem", .needed = [](double) { return 0.0; }};
  EXPECT_EQ(guarantee.iterations(1), 1);
  guarantee.counts_steps = true;
  EXPECT_EQ(guarantee.iterations(1), 0);
}

TEST(Guarantee, ErrorsOfIterations) {
  for (const double precision : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    EXPECT_INPUT_ERROR(kInverse.iterations(precision), "a theorem: eps must be > 0 and finite, got ");
  }
  EXPECT_INPUT_ERROR(kInverse.iterations(1e-310), "a theorem: K overflows double for eps = 1e-310");
  const Guarantee nowhere{.theorem = "a theorem", .needed = [](double) { return NAN; }};
  EXPECT_INPUT_ERROR(nowhere.iterations(1), "a theorem: K overflows double for eps = 1");
}

Constants two_layers(double l0a, double l1a, double l0b, double l1b, double gap = 3) {
  return {.layers = {{.l0 = l0a, .l1 = l1a}, {.l0 = l0b, .l1 = l1b}}, .initial_gap = gap};
}

Constants one_layer(const LayerConstants& layer) { return {.layers = {layer}, .initial_gap = 1}; }

const Constants kConstants = two_layers(2, 1, 1, 2);
const Constants kWithoutL1 = two_layers(2, 0, 1, 0);

TEST(Theorem1, CountMatchesTheFormula) {
  EXPECT_EQ(theorem1(kConstants).iterations(0.5), 72 + 24);  // 2*3*3/0.25 + 2*3*2/0.5
  EXPECT_EQ(theorem1(kConstants).weights, (std::vector<double>{1, 1}));
  // h = 2 / (1 + 1/2) = 4/3, h^2 (2/1 + 1/4) = 4: 2*3*4/0.25 + 2*3*(4/3)/0.5
  EXPECT_EQ(theorem1_weighted(kConstants).iterations(0.5), 96 + 16);
  EXPECT_EQ(theorem1_weighted(kConstants).weights, (std::vector<double>{4.0 / 3, 2.0 / 3}));
  EXPECT_EQ(theorem1(two_layers(2, 1, 1, 2, 0)).iterations(0.5), 1);  // at least one iterate
  EXPECT_EQ(theorem1(kConstants).iterations(1e9), 1);
}

TEST(Theorem1, RoundingDoesNotCostAnIteration) {
  EXPECT_EQ(theorem1(one_layer({.l0 = 1})).iterations(0.1), 200);  // 2 / 0.1 / 0.1 is 200.00000000000003 or so
  EXPECT_EQ(theorem1(one_layer({.l0 = 1})).iterations(0.3), 23);   // 22.2
}

TEST(Theorem1, WithoutL1IsTheClassicalRate) {
  for (const double eps : {1.0, 0.25, 0.125}) {
    EXPECT_EQ(theorem1(kWithoutL1).iterations(eps), 2 * 3 * 3 / (eps * eps));  // 2 L Delta0 / eps^2
  }
}

TEST(Theorem1, WithoutL0IsLinearInOneOverEps) {
  const Constants constants = two_layers(0, 1, 0, 4);
  EXPECT_EQ(theorem1(constants).iterations(0.5), 48);                            // 2*3*4/0.5
  EXPECT_NEAR(theorem1_weighted(constants).bound(10), 2 * 3 * 1.6 / 10, 1e-12);  // h = 1.6 <= max L1
}

// The remark after theorem 1 says the opposite; see the header. needed(1) is 2 Delta0 (first term + h).
TEST(Theorem1, WeightedFirstTermIsSmallerWhenLargeL0ComeWithLargeL1) {
  EXPECT_DOUBLE_EQ(theorem1_weighted(two_layers(2, 1, 1, 2)).needed(1) / 6 - 4.0 / 3, 4);
  EXPECT_DOUBLE_EQ(theorem1_weighted(two_layers(2, 2, 1, 1)).needed(1) / 6 - 4.0 / 3, 8.0 / 3);
  EXPECT_DOUBLE_EQ(theorem1(two_layers(2, 1, 1, 2)).needed(1) / 6 - 2, 3);
}

TEST(PlTheorem, CountMatchesTheFormula) {
  // 3*3/(0.5*0.5) + 3*2*sqrt(2/(0.5*0.5)) = 36 + 16.97
  EXPECT_EQ(theorem_pl(kConstants, 0.5).iterations(0.5), 53);
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(0.5), 8);  // 4 log 6 = 7.17
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(3), 0);    // already there: no step
  EXPECT_EQ(theorem_pl_without_l1(kWithoutL1, 0.5).iterations(5), 0);
  EXPECT_TRUE(theorem_pl(kConstants, 0.5).weights.empty());
}

TEST(Theorem2, CountMatchesTheFormula) {
  // (1-z)^2 = 1/4: 2*3*3/(0.25*0.25) + 2*3*1.5*2/(0.25*0.5)
  EXPECT_EQ(theorem2(kConstants, 0.5).iterations(0.5), 288 + 144);
  // h = 4/3 and h^2 sum(L0/L1^2) = 4: 2*3*4/(0.25*0.25) + 2*3*1.5*(4/3)/(0.25*0.5)
  EXPECT_EQ(theorem2_weighted(kConstants, 0.5).iterations(0.5), 384 + 96);
  for (const double eps : {1.0, 0.3, 0.01}) {
    EXPECT_EQ(theorem2(kConstants, 0).iterations(eps), theorem1(kConstants).iterations(eps));
    EXPECT_EQ(theorem2_weighted(kConstants, 0).iterations(eps), theorem1_weighted(kConstants).iterations(eps));
  }
}

TEST(EveryGuarantee, BoundIsTheInverseOfTheCount) {
  for (const Guarantee& guarantee : {theorem1(kConstants), theorem1_weighted(kConstants), theorem_pl(kConstants, 0.3),
                                     theorem_pl_without_l1(kWithoutL1, 0.3), theorem2(kConstants, 0.4),
                                     theorem2_weighted(kConstants, 0.4), theorem3(kConstants, 0.2)}) {
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
  EXPECT_EQ(theorem1(kConstants).radii[0], "smooth(2,1)");
  EXPECT_EQ(theorem2(kConstants, 0.25).radii[0], "relative_noise(2,1,0.25)");
  EXPECT_EQ(theorem1(kConstants).largest_radii, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(theorem1(kWithoutL1).largest_radii[0], std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(theorem2(kConstants, 0.5).largest_radii[1], 0.5 / (1.5 * 2));
}

TEST(TheoremRadius, MatchesTheFormula) {
  EXPECT_DOUBLE_EQ(theorem1_radius({.l0 = 2, .l1 = 1}, 3), 0.6);
  EXPECT_EQ(theorem1_radius({.l0 = 0, .l1 = 1}, 0), 0);
  EXPECT_DOUBLE_EQ(theorem2_radius({.l0 = 2, .l1 = 1}, 0.5, 4), 0.5 * 4 / (2 + 1.5 * 4));
  EXPECT_EQ(theorem2_radius({.l0 = 0, .l1 = 1}, 0.5, 0), 0);
}

TEST(Theorem3, BoundMatchesTheFormulaWithoutL1) {
  const Guarantee guarantee = theorem3(one_layer({.l0 = 2, .l1 = 0, .t = 0.5}), 3);
  EXPECT_DOUBLE_EQ(guarantee.bound(1), 33.25);       // 1 + 3*0.5*7 + 2*0.25*43.5
  EXPECT_NEAR(guarantee.bound(16), 42.31677, 1e-5);  // (1 + 1.5 (7 + 21.31695) + 0.5 (43.5 + 38.81624)) / 2
  EXPECT_EQ(guarantee.weights, std::vector<double>{0.5});
  EXPECT_EQ(guarantee.largest_radii, std::vector<double>{0.5});
  EXPECT_EQ(guarantee.momentum, "theorem3");
  EXPECT_EQ(guarantee.radii[0], "power(0.5)");
}

TEST(Theorem3, BoundMatchesTheFormulaWithL1) {
  // t = 1/(12 L1) = 1/2: 2 + 3/(6/6) * 7 + 2/(144/36) * 87
  const Guarantee guarantee = theorem3(one_layer({.l0 = 2, .l1 = 1.0 / 6}), 3);
  EXPECT_DOUBLE_EQ(guarantee.bound(1), 66.5);
  const double log_k = std::log(81.0);
  EXPECT_NEAR(guarantee.bound(81), (2 + 3 * (7 + 2 * std::sqrt(2 * std::exp(2)) * log_k) + 0.5 * (87 + 28 * log_k)) / 3,
              1e-9);
}

TEST(Theorem3, NoiseFactorMultipliesSigma) {
  EXPECT_DOUBLE_EQ(theorem3(one_layer({.l1 = 1, .noise_factor = 3}), 1).bound(50),
                   theorem3(one_layer({.l1 = 1}), 3).bound(50));
}

// The bound rises before it falls; K is the first one that is low enough.
TEST(Theorem3, CountIsTheSmallestSufficient) {
  for (const double sigma : {0.0, 0.1, 5.0}) {
    const Guarantee guarantee = theorem3(kConstants, sigma);
    for (const double share : {1.5, 1.0, 0.9, 0.5}) {
      const double eps = share * guarantee.bound(1);
      double smallest = 1;
      while (guarantee.bound(smallest) > eps) ++smallest;
      EXPECT_EQ(guarantee.iterations(eps), smallest) << "sigma " << sigma << " share " << share;
    }
  }
  // Without noise it falls as the fourth power.
  EXPECT_EQ(theorem3(one_layer({.l1 = 1}), 0).iterations(0.2), 1e4);  // (2 / 0.2)^4
  EXPECT_EQ(theorem3(one_layer({.l1 = 1}), 0).iterations(1), 16);
}

TEST(Theorem3, MomentumMatchesTheOptimizer) {
  for (const int64_t k : {0, 1, 2, 99, 12345}) EXPECT_DOUBLE_EQ(theorem3_beta(k), Momentum::theorem3().beta(k));
  EXPECT_EQ(theorem3_beta(0), 0);
  EXPECT_DOUBLE_EQ(theorem3_radius(0.5, 15), 0.0625);
  EXPECT_DOUBLE_EQ(theorem3_largest_t(2), 1.0 / 24);
}

TEST(Theorems, BadInput) {
  EXPECT_INPUT_ERROR(theorem1({}), "theorem 1: expected L0 and L1 of at least one layer, got none");
  EXPECT_INPUT_ERROR(theorem_pl({}, 1), "PL theorem: expected L0 and L1");
  EXPECT_INPUT_ERROR(theorem3({}, 1), "theorem 3: expected L0 and L1");
  EXPECT_INPUT_ERROR(theorem1(kConstants).iterations(0), "theorem 1: eps must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(theorem1(kConstants).iterations(1e-200), "K overflows double for eps = 1e-200");
  EXPECT_INPUT_ERROR(theorem1_weighted(two_layers(2, 1, 1, 0)),
                     "the weights 1 / L1 need L1 > 0 in every layer, got L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(theorem_pl(kConstants, 0), "PL theorem: mu must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(theorem_pl(kConstants, INFINITY), "PL theorem: mu must be > 0 and finite, got inf");
  EXPECT_NO_THROW(theorem_pl_without_l1(kWithoutL1, 2));
  EXPECT_INPUT_ERROR(theorem_pl_without_l1(kConstants, 1), "L1 must be 0 in every layer, got 2");
  EXPECT_INPUT_ERROR(theorem_pl_without_l1(kWithoutL1, 2.5),
                     "mu is at most the largest L0 (2) for every function, got 2.5");
  EXPECT_INPUT_ERROR(theorem2(kConstants, 1), "theorem 2: zeta must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(theorem2_weighted(kConstants, -0.1), "theorem 2, weighted: zeta must be in [0, 1), got -0.1");
  EXPECT_INPUT_ERROR(theorem3(kConstants, -1), "theorem 3: sigma must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(theorem3(kConstants, INFINITY), "theorem 3: sigma must be >= 0 and finite, got inf");
}

TEST(Theorem3, BadLayers) {
  const auto with = [](const LayerConstants& layer) { return theorem3({.layers = {{.l0 = 1, .l1 = 1}, layer}}, 1); };
  EXPECT_INPUT_ERROR(with({.l0 = 1, .l1 = 2, .t = 0.05}),
                     "t must be at most 1 / (12 L1) = 0.0416667, got 0.05 for layer 2");
  EXPECT_INPUT_ERROR(with({.l0 = 1, .l1 = 2, .t = -1}), "theorem 3: t must be > 0 and finite, got -1 for layer 2");
  EXPECT_INPUT_ERROR(with({.l0 = 1}), "theorem 3: L1 = 0 allows any t; give t for layer 2");
  EXPECT_INPUT_ERROR(with({.l0 = 1, .l1 = 1, .noise_factor = 0.5}),
                     "the noise factor must be >= 1, got 0.5 for layer 2");
  EXPECT_INPUT_ERROR(with({.l1 = 1e-320}), "theorem 3: 1 / (12 L1) overflows double; give t for layer 2");
  EXPECT_EQ(with({.l1 = 1e-320, .t = 1.0 / 12}).weights[1], 1.0 / 12);
  EXPECT_INPUT_ERROR(with({.l0 = 1, .l1 = 1e-200}), "theorem 3: the bound overflows double; give smaller t");
}

TEST(Table1, HasTheRowsOfThePaper) {
  const std::vector<TableRow> rows = table1(kConstants, NoiseKind::kNone, 0.5);
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[3].source, "Pethick 2025, lemma 5.4");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].layer_wise, i >= 4) << rows[i].source;
    EXPECT_EQ(rows[i].stochastic, i != 0 && i != 4) << rows[i].source;
    EXPECT_EQ(rows[i].rate, rows[i].stochastic ? "K^(-1/4)" : "K^(-1/2)") << rows[i].source;
  }
  EXPECT_EQ(rows[4].source, "NEW: theorem 1");
  EXPECT_EQ(rows[4].radius, "adaptive");
  EXPECT_EQ(rows[4].one_minus_beta, "-");
  EXPECT_EQ(rows[5].source, "NEW: theorem 3");
  EXPECT_EQ(rows[5].radius, "~ k^(-3/4)");
  EXPECT_EQ(rows[5].one_minus_beta, "~ k^(-1/2)");
}

TEST(Table1, EarlierResultsNeedSixLDeltaWithoutNoiseAndL1) {
  const std::vector<TableRow> rows = table1(kWithoutL1, NoiseKind::kNone, 0.5);
  EXPECT_EQ(rows[0].iterations, 216);  // 6 * 3 * 3 / 0.25
  EXPECT_EQ(rows[3].iterations, 216);
  EXPECT_EQ(rows[2].obstacle, "for one layer only");
  EXPECT_FALSE(rows[2].iterations);
  EXPECT_EQ(*rows[0].iterations, 3 * *rows[4].iterations);  // theorem 1 is three times better
  EXPECT_EQ(rows[5].obstacle, "");
  EXPECT_FALSE(rows[5].iterations);  // theorem 3 needs a t
  for (std::size_t i = 0; i < 4; ++i) {
    const TableRow row = table1(one_layer({.l0 = 1}), NoiseKind::kNone, 0.1)[i];
    EXPECT_EQ(row.obstacle, "");
    EXPECT_EQ(row.iterations, 600);
  }
}

TEST(Table1, NewResultsHaveTheTheoremsCounts) {
  const auto rows = [](NoiseKind noise, std::optional<double> sigma = {}) {
    return table1(kConstants, noise, 0.5, sigma);
  };
  const double least = 1.0 / 24;  // t = 1 / (12 L1), with L1 = 1 and 2
  EXPECT_EQ(rows(NoiseKind::kNone)[4].iterations, theorem1(kConstants).iterations(0.5));
  EXPECT_EQ(rows(NoiseKind::kNone)[5].iterations, theorem3(kConstants, 0).iterations(0.5 * least));
  EXPECT_EQ(rows(NoiseKind::kVariance, 3)[5].iterations, theorem3(kConstants, 3).iterations(0.5 * least));
  EXPECT_EQ(rows(NoiseKind::kVariance)[5].obstacle, "");
  EXPECT_FALSE(rows(NoiseKind::kVariance)[5].iterations);  // sigma is not given
  EXPECT_EQ(rows(NoiseKind::kVariance)[4].obstacle, "needs exact gradients");
  EXPECT_EQ(rows(NoiseKind::kRelative)[4].obstacle, "needs exact gradients");
  EXPECT_EQ(rows(NoiseKind::kRelative)[5].obstacle, "needs bounded variance");
  // A count beyond double is left out.
  EXPECT_FALSE(table1(one_layer({.l0 = 1, .l1 = 1, .t = 1e-200}), NoiseKind::kNone, 0.5)[5].iterations);
}

TEST(Table1, EarlierResultsHaveNoCountsWithNoise) {
  const std::vector<TableRow> rows = table1(kWithoutL1, NoiseKind::kVariance, 0.5);
  const std::vector<std::string> obstacles = {"needs exact gradients", "", "for one layer only", ""};
  for (std::size_t i = 0; i < obstacles.size(); ++i) {
    EXPECT_FALSE(rows[i].iterations) << rows[i].source;
    EXPECT_EQ(rows[i].obstacle, obstacles[i]);
  }
  EXPECT_EQ(table1(kWithoutL1, NoiseKind::kRelative, 0.5)[1].obstacle, "needs bounded variance");
}

TEST(Table1, NoEarlierResultAppliesWithL1) {
  const std::vector<TableRow> rows = table1(one_layer({.l1 = 1}), NoiseKind::kNone, 0.5);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].obstacle, "needs L1 = 0 in every layer");
    EXPECT_FALSE(rows[i].iterations);
  }
}

TEST(Table1, BadInput) {
  const Constants one = one_layer({.l1 = 1});
  EXPECT_INPUT_ERROR(table1(one, NoiseKind::kNone, 0), "table 1: eps must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(table1(one, NoiseKind::kVariance, 1, -1), "table 1: sigma must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(table1({}, NoiseKind::kNone, 1), "table 1: expected L0 and L1 of at least one layer, got none");
}

}  // namespace
}  // namespace gluon::theory
