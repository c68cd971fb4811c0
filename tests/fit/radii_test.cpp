#include "gluon/fit/radii.h"

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

// Lhat = l0 + l1 |g|* exactly.
LayerTrajectory layer(const std::string& name, const std::string& group, double l0, double l1, double radius) {
  LayerTrajectory trajectory{name, group, "spectral", "exact", {}};
  for (const double gradient : {1.0, 2.0, 4.0}) {
    trajectory.samples.push_back({.step = 1, .smoothness = l0 + l1 * gradient, .gradient = gradient, .radius = radius});
  }
  return trajectory;
}

std::vector<GroupRadius> predict(const Trajectory& trajectory) { return predict_radii(fit_trajectory(trajectory)); }

TEST(Radii, MediansOverTheLayersOfAGroup) {
  const std::vector<GroupRadius> radii = predict({Estimator::kFull,
                                                  {layer("a", "hidden", 1, 2, 0.1), layer("e", "embedding", 0, 4, 3),
                                                   layer("b", "hidden", 0, 10, 0.1), layer("c", "hidden", 3, 1, 0.1)}});
  ASSERT_EQ(radii.size(), 2u);
  EXPECT_EQ(radii[0].group, "hidden");
  EXPECT_EQ(radii[0].layers, 3);
  EXPECT_NEAR(radii[0].l0, 1, 1e-9);
  EXPECT_NEAR(radii[0].l1, 2, 1e-9);
  EXPECT_NEAR(radii[0].gradient, 2, 1e-12);
  EXPECT_NEAR(radii[0].predicted, 0.4, 1e-9);  // of 2/5, 2/20 and 2/5
  EXPECT_NEAR(radii[0].used, 0.1, 1e-12);
  EXPECT_EQ(radii[1].group, "embedding");
  EXPECT_NEAR(radii[1].predicted, 0.25, 1e-9);
  EXPECT_EQ(radii[1].used, 3);
}

TEST(Radii, IgnoresUnfittedLayers) {
  Trajectory trajectory{Estimator::kFull, {layer("a", "hidden", 1, 2, 0.1), layer("b", "hidden", 0, 0, 0.1)}};
  EXPECT_EQ(predict(trajectory)[0].layers, 1);
  trajectory.layers.erase(trajectory.layers.begin());
  EXPECT_INPUT_ERROR(predict(trajectory),
                     "radii: none of the 1 layers gives a radius; the gradient of no layer changed");
  trajectory.layers[0].samples.resize(1);
  EXPECT_INPUT_ERROR(predict(trajectory), "layer 'b': ");
}

TEST(Radii, UsesFittedSamplesOnly) {
  Trajectory trajectory{Estimator::kFull, {layer("a", "hidden", 0, 2, 0.1)}};
  trajectory.layers[0].samples.insert(trajectory.layers[0].samples.begin(),
                                      {.step = 0, .smoothness = 1, .gradient = 1000, .radius = 7});
  const std::vector<GroupRadius> radii = predict_radii(fit_trajectory(trajectory, {.skip_first = 1}));
  EXPECT_EQ(radii[0].gradient, 2);
  EXPECT_EQ(radii[0].used, 0.1);
}

TEST(Radii, WithoutL0IndependentOfTheGradient) {
  LayerTrajectory still = layer("a", "hidden", 0, 4, 0.1);
  for (int i = 0; i < 4; ++i) still.samples.push_back({.step = 1, .smoothness = 0, .gradient = 0, .radius = 0.1});
  EXPECT_NEAR(predict({Estimator::kFull, {still}})[0].predicted, 0.25, 1e-9);
}

TEST(Radii, PredictedRadiusIsTheorem1) {
  EXPECT_DOUBLE_EQ(predicted_radius(1, 2, 3), 3.0 / 7);
  EXPECT_DOUBLE_EQ(predicted_radius(2, 0, 3), 1.5);
  EXPECT_DOUBLE_EQ(predicted_radius(0, 4, 0), 0.25);
  EXPECT_TRUE(std::isnan(predicted_radius(0, 0, 3)));
}

TEST(Radii, TheRadiusUsedMayBeUnknown) {
  const Trajectory trajectory{Estimator::kUnknown, {layer("0", "", 1, 2, Sample::kMissing)}};
  EXPECT_TRUE(std::isnan(predict(trajectory)[0].used));
}

}  // namespace
}  // namespace gluon
