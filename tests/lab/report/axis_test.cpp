#include "lab/report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace gluon::lab {
namespace {

std::vector<double> ticks(double low, double high, bool log = false, bool whole = false) {
  return Axis{.low = low, .high = high, .log = log, .whole = whole}.ticks(6);
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_EQ(ticks(0, 6), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ticks(-0.5, 100), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(ticks(0.5, 200, true), (std::vector<double>{1, 10, 100}));
  EXPECT_EQ(ticks(2, 8, true), (std::vector<double>{2, 3, 4, 5, 6, 7, 8}));
}

TEST(Ticks, AreFewInEveryRange) {
  const double tiny = std::numeric_limits<double>::denorm_min(), huge = std::numeric_limits<double>::max();
  const double ulp = std::numeric_limits<double>::epsilon();
  const std::pair<double, double> ranges[] = {
      {1, 1 + ulp},   {1, 1 + 2 * ulp}, {0.003, 0.003 * (1 + 2 * ulp)},
      {1, 1},         {1e300, 1e300},   {9.223372036854774e18, 9.223372036854776e18},
      {0, tiny},      {tiny, 2 * tiny}, {tiny, huge},
      {-huge, huge},  {1e16, 1e16 + 4}, {-1e16 - 4, -1e16},
      {1 - ulp, 1e9}, {huge / 2, huge}};
  for (const auto& [low, high] : ranges) {
    for (const bool log : {false, true}) {
      if (log && low <= 0) continue;
      const std::vector<double> found = ticks(low, high, log);
      EXPECT_LE(found.size(), 700u) << low << " " << high;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(std::isfinite(found[i])) << low << " " << high;
        EXPECT_TRUE(i == 0 || found[i] > found[i - 1]) << low << " " << high;
      }
    }
  }
}

TEST(Ticks, OfStepsAreWholeNumbers) {
  EXPECT_EQ(ticks(0.5, 1.5, false, true), std::vector<double>{1});
  EXPECT_EQ(ticks(1, 3, false, true), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(ticks(1, 3), (std::vector<double>{1, 1.5, 2, 2.5, 3}));
}

TEST(Ticks, HaveShortTexts) {
  EXPECT_EQ(tick_text(0), "0");
  EXPECT_EQ(tick_text(2500), "2500");
  EXPECT_EQ(tick_text(10000), "10k");
  EXPECT_EQ(tick_text(-3.4e6), "-3.4M");
  EXPECT_EQ(tick_text(0.05), "0.05");
  EXPECT_EQ(tick_text(1e300), "1e+300");
}

TEST(Axis, PadsWithinTheFiniteNumbers) {
  const auto padded = [](Axis axis) {
    axis.pad();
    return std::pair(axis.low, axis.high);
  };
  EXPECT_EQ(padded({.low = 10, .high = 20}), std::pair(9.5, 20.5));
  EXPECT_EQ(padded({.low = 0.1, .high = 10.1}), std::pair(0.0, 10.6)) << "zero stays the floor";
  EXPECT_DOUBLE_EQ(padded({.low = 1, .high = 100, .log = true}).second, 100 * std::pow(100, 0.05));
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(padded({.low = -huge, .high = huge}), std::pair(-huge, huge));
}

TEST(Fence, LeavesOutWhatWouldFlattenTheRest) {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) values.push_back(3 + 0.1 * i);
  EXPECT_FALSE(fence_of(values, false));
  values.push_back(1000);
  const auto fence = fence_of(values, false);
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->low, 3);
  EXPECT_DOUBLE_EQ(fence->high, 4.9);
  EXPECT_EQ(fence->outside, 1u);
  EXPECT_TRUE(fence_of(values, true));
  values.back() = 7.6;
  EXPECT_FALSE(fence_of(values, false)) << "it does not stretch the axis much";
  EXPECT_FALSE(fence_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1e9}, false)) << "the quartiles are the same";
  EXPECT_FALSE(fence_of({1, 2, 3, 1000}, false)) << "too few";
}

}  // namespace
}  // namespace gluon::lab
