#include "lab/report/thin.h"

#include <algorithm>
#include <cmath>

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TEST(Thin, KeepsShortSeries) {
  const std::vector<double> values = {3, 1, 2};
  EXPECT_EQ(thin(values, 8), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_TRUE(thin({}, 8).empty());
}

TEST(Thin, KeepsSpikes) {
  for (const std::size_t spike : {0, 1, 777, 5000, 99998, 99999}) {
    std::vector<double> values(100000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.01 * static_cast<double>(i));
    values[spike] = 50;
    values[(spike + 31) % values.size()] = -50;
    const std::vector<std::size_t> kept = thin(values, 300);
    EXPECT_LE(kept.size(), 300u);
    EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
    EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end()), kept.end());
    EXPECT_EQ(kept.front(), 0u);
    EXPECT_EQ(kept.back(), values.size() - 1);
    EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), spike));
    EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), (spike + 31) % values.size()));
  }
}

TEST(Thin, KeepsGapsAndRejectsSmallLimits) {
  std::vector<double> values(1000, 1);
  values[500] = std::nan("");
  const std::vector<std::size_t> kept = thin(values, 100);
  EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), 500u));
  EXPECT_INPUT_ERROR((void)thin({}, 7), "thin: limit must be >= 8, got 7");
}

}  // namespace
}  // namespace gluon::lab
