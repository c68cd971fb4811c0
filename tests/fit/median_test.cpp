#include "gluon/fit/median.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gluon {
namespace {

TEST(Median, MiddleValueOrMeanOfTwo) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({4, 1}), 2.5);
  EXPECT_EQ(median({9, -1, 3}), 3);
  EXPECT_EQ(median({9, 1, 5, 2}), 3.5);
  EXPECT_EQ(median({5, 5, 1, 5}), 5);
}

TEST(Median, HugeAndTinyNumbers) {
  EXPECT_EQ(median({1.5e308, 1.7e308}), 1.6e308);
  EXPECT_EQ(median({INFINITY, 1, 2}), 2);
  EXPECT_EQ(median({1e-320, 1e-320}), 1e-320);
}

}  // namespace
}  // namespace gluon
