#include "lab/sweep/factor_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 2 at `best`, rising with the square of the distance in octaves.
FactorTrial parabola(double best) {
  return [best](double factor) { return 2 + 0.01 * std::pow(std::log2(factor / best), 2); };
}

std::vector<double> factors(const FactorSearch& search) {
  std::vector<double> factors;
  for (const TriedFactor& tried : search.tried) factors.push_back(tried.factor);
  return factors;
}

TEST(FactorSearch, MovesByEightThenByTwoThenFitsAParabola) {
  const FactorSearch search = search_factor(1, kMostTrials, parabola(1.25));
  EXPECT_EQ(factors(search), (std::vector<double>{1, 8, 0.125, 2, 0.5}));
  EXPECT_EQ(static_cast<int>(search.tried.size()), kFewestTrials);
  EXPECT_NEAR(search.factor.value(), 1.25, 1e-9);
  EXPECT_TRUE(search.settled);
  EXPECT_FALSE(search.flat);
  EXPECT_FALSE(search.stopped);
}

TEST(FactorSearch, EndsAtTheSameFactorFromAHundredTimesTooSmallAndTooLarge) {
  for (const double best : {0.3, 0.7, 1.0, 1.5, 4.0}) {
    for (const double start : {0.01, 0.1, 1.0, 10.0, 100.0}) {
      const FactorSearch search = search_factor(start, kMostTrials, parabola(best));
      EXPECT_NEAR(search.factor.value(), best, 1e-9) << start;
      EXPECT_TRUE(search.settled) << start << ' ' << best;
    }
  }
  EXPECT_EQ(factors(search_factor(100, kMostTrials, parabola(1))),
            (std::vector<double>{100, 12.5, 1.5625, 0.1953125, 0.78125, 0.390625}));
  EXPECT_EQ(factors(search_factor(0.01, kMostTrials, parabola(1))),
            (std::vector<double>{0.01, 0.08, 0.64, 5.12, 1.28, 2.56}));
}

// A loss that is steep above its minimum and flat below, as training has it.
TEST(FactorSearch, ALossThatIsNoParabolaEndsNearItsMinimum) {
  const FactorTrial trial = [](double factor) { return 0.3 / std::sqrt(factor) + 0.1 * factor; };
  const double best = std::pow(1.5, 2.0 / 3);
  for (const double start : {0.01, 1.0, 100.0}) {
    EXPECT_NEAR(std::log2(search_factor(start, kMostTrials, trial).factor.value() / best), 0, 0.3) << start;
  }
}

TEST(FactorSearch, NoiseBelowTheDifferencesMovesItLittle) {
  for (int seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.001);
    const FactorTrial trial = [&](double factor) { return *parabola(1)(factor) + noise(random); };
    for (const double start : {0.01, 1.0, 100.0}) {
      const FactorSearch search = search_factor(start, kMostTrials, trial);
      EXPECT_NEAR(std::log2(search.factor.value()), 0, 0.5) << seed << ' ' << start;
    }
  }
}

TEST(FactorSearch, TrialsThatDivergeAreAbove) {
  for (const double bad : {kNan, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    const FactorTrial trial = [&](double factor) { return factor > 3 ? bad : *parabola(0.5)(factor); };
    for (const double start : {0.01, 1.0, 100.0}) {
      const FactorSearch search = search_factor(start, kMostTrials, trial);
      EXPECT_NEAR(search.factor.value(), 0.5, 1e-9) << start;
      EXPECT_TRUE(search.settled);
    }
  }
  // Beside a neighbour that diverged there is no parabola: the best one counts.
  const FactorTrial steep = [](double factor) { return factor > 1 ? kNan : -std::log(factor); };
  EXPECT_EQ(search_factor(1, kMostTrials, steep).factor, 1);
  EXPECT_EQ(factors(search_factor(100, 3, steep)), (std::vector<double>{100, 12.5, 1.5625}));
}

TEST(FactorSearch, WithoutAFiniteLossThereIsNoFactor) {
  const FactorSearch search = search_factor(1, 4, [](double) { return kNan; });
  EXPECT_EQ(factors(search), (std::vector<double>{1, 0.125, 0.015625, 0.001953125}));
  EXPECT_FALSE(search.factor.has_value());
  EXPECT_FALSE(search.settled);
}

TEST(FactorSearch, StaysWhereTrialsTie) {
  const FactorSearch search = search_factor(0.5, kMostTrials, [](double) { return 2; });
  EXPECT_EQ(search.tried.size(), 5u);
  EXPECT_EQ(search.factor, 0.5);
  EXPECT_TRUE(search.flat);
  EXPECT_FALSE(search.settled);
}

TEST(FactorSearch, EndsWithItsTrials) {
  const FactorSearch search = search_factor(0.01, 3, parabola(1));
  EXPECT_EQ(factors(search), (std::vector<double>{0.01, 0.08, 0.64}));
  EXPECT_EQ(search.factor, 0.64);  // it has no neighbour above: no parabola
  EXPECT_FALSE(search.settled);
  EXPECT_FALSE(search.stopped);
  const FactorSearch falling = search_factor(1, kMostTrials, [](double factor) { return -std::log(factor); });
  EXPECT_EQ(falling.tried.size(), 9u);
  EXPECT_FALSE(falling.settled);
}

TEST(FactorSearch, AStoppedTrialEndsIt) {
  int left = 2;
  const FactorSearch search = search_factor(1, kMostTrials, [&](double factor) -> std::optional<double> {
    if (left-- == 0) return std::nullopt;
    return parabola(1)(factor);
  });
  EXPECT_EQ(search.tried.size(), 2u);
  EXPECT_TRUE(search.stopped);
  EXPECT_FALSE(search.settled);
}

TEST(FactorSearch, BadInputIsNamed) {
  EXPECT_INPUT_ERROR(search_factor(0, 5, parabola(1)), "tune: the first factor must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(search_factor(kNan, 5, parabola(1)), "tune: the first factor must be > 0 and finite, got nan");
  EXPECT_INPUT_ERROR(search_factor(1, 0, parabola(1)), "tune: the number of trials must be >= 1, got 0");
}

}  // namespace
}  // namespace gluon::lab
