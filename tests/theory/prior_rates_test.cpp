#include "gluon/theory/prior_rates.h"

#include <gtest/gtest.h>

#include "gluon/theory/deterministic.h"
#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

const Constants kWithoutL1{.layers = {{.l0 = 2, .l1 = 0}, {.l0 = 1, .l1 = 0}}, .initial_gap = 3};

TEST(PriorRates, SixLDeltaWithoutNoiseAndL1) {
  const std::vector<PriorRate> rows = prior_rates(kWithoutL1, NoiseKind::kNone, 0.5);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].iterations, 216);  // 6 * 3 * 3 / 0.25
  EXPECT_EQ(rows[3].iterations, 216);
  EXPECT_EQ(rows[2].obstacle, "for one layer only");
  EXPECT_FALSE(rows[2].iterations);
  EXPECT_EQ(*rows[0].iterations,
            3 * theorem1(kWithoutL1).iterations(0.5));  // theorem 1 is three times better
}

TEST(PriorRates, AllFourApplyToOneLayer) {
  for (const PriorRate& row : prior_rates({.layers = {{.l0 = 1}}, .initial_gap = 1}, NoiseKind::kNone, 0.1)) {
    EXPECT_EQ(row.obstacle, "");
    EXPECT_EQ(row.iterations, 600);
  }
}

TEST(PriorRates, NoCountsWithNoise) {
  for (const PriorRate& row : prior_rates(kWithoutL1, NoiseKind::kVariance, 0.5))
    EXPECT_FALSE(row.iterations) << row.source;
  EXPECT_EQ(prior_rates(kWithoutL1, NoiseKind::kVariance, 0.5)[0].obstacle, "needs exact gradients");
  EXPECT_EQ(prior_rates(kWithoutL1, NoiseKind::kVariance, 0.5)[1].obstacle, "");
  EXPECT_EQ(prior_rates(kWithoutL1, NoiseKind::kVariance, 0.5)[2].obstacle, "for one layer only");
  EXPECT_EQ(prior_rates(kWithoutL1, NoiseKind::kVariance, 0.5)[3].obstacle, "");
  EXPECT_EQ(prior_rates(kWithoutL1, NoiseKind::kRelative, 0.5)[1].obstacle, "needs bounded variance");
}

TEST(PriorRates, NoneAppliesWithL1) {
  const Constants constants{.layers = {{.l0 = 0, .l1 = 1}}, .initial_gap = 1};
  for (const PriorRate& row : prior_rates(constants, NoiseKind::kNone, 0.5)) {
    EXPECT_EQ(row.obstacle, "needs L1 = 0 in every layer");
    EXPECT_FALSE(row.iterations);
  }
  EXPECT_INPUT_ERROR(prior_rates(constants, NoiseKind::kNone, 0), "prior rates: eps must be > 0, got 0");
}

}  // namespace
}  // namespace gluon::theory
