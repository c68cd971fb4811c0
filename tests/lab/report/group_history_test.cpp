#include "lab/report/group_history.h"

#include <cmath>

#include "gtest/gtest.h"

namespace gluon::lab {
namespace {

LayerTrajectory layer(const std::string& name, const std::string& group, std::vector<Sample> samples) {
  return {.layer = name, .group = group, .norm = "spectral", .dual_method = "exact", .samples = std::move(samples)};
}

LayerFit fit(const std::string& name, double l0, double l1) {
  LayerFit fit;
  fit.layer = name;
  fit.fit.l0 = l0;
  fit.fit.l1 = l1;
  return fit;
}

TEST(GroupHistory, MediansOverTheLayersOfAGroupAtEachStep) {
  const Trajectory trajectory{
      .layers = {
          layer("a", "hidden",
                {{.step = 2, .gradient = 1, .alignment = 0.2, .radius = 0.1}, {.step = 4, .gradient = 3}}),
          layer("head", "head", {{.step = 2, .gradient = 5, .alignment = 0.9}}),
          layer("b", "hidden", {{.step = 2, .gradient = 2, .alignment = 0.4, .radius = 0.3}}),
      }};
  const std::vector<GroupHistory> histories = group_histories(trajectory, {.layers = {fit("a", 1, 1), fit("b", 0, 4)}});
  ASSERT_EQ(histories.size(), 2u);
  EXPECT_EQ(histories[0].group, "hidden");
  EXPECT_EQ(histories[0].steps, (std::vector<int64_t>{2, 4}));
  EXPECT_DOUBLE_EQ(histories[0].alignment[0], 0.3);
  EXPECT_DOUBLE_EQ(histories[0].used[0], 0.2);
  EXPECT_DOUBLE_EQ(histories[0].predicted[0], (0.5 + 0.25) / 2);
  EXPECT_TRUE(std::isnan(histories[0].alignment[1]));
  EXPECT_DOUBLE_EQ(histories[0].predicted[1], 0.75);
  EXPECT_EQ(histories[1].group, "head");
  EXPECT_TRUE(std::isnan(histories[1].predicted[0]));  // it has no fit
}

TEST(GroupHistory, NoPredictionWhenTheGradientNeverChanged) {
  const Trajectory trajectory{.layers = {layer("a", "hidden", {{.step = 1, .gradient = 1}})}};
  const std::vector<GroupHistory> histories = group_histories(trajectory, {.layers = {fit("a", 0, 0)}});
  EXPECT_TRUE(std::isnan(histories.at(0).predicted.at(0)));
}

}  // namespace
}  // namespace gluon::lab
