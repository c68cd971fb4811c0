#include "gluon/fit/radii.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "gluon/fit/median.h"
#include "gluon/smoothness/trajectory.h"
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

std::map<std::string, double> predict(const Trajectory& trajectory, const FitOptions& options) {
  std::map<std::string, double> predicted;
  for (const GroupRadius& radius : predict_radii(fit_trajectory(trajectory, options))) {
    predicted[radius.group] = radius.predicted;
  }
  return predicted;
}

// Two blocks and the embedding of a run whose first samples are up to 50 times above the line of the others:
// gluon train --preset scion --data tinyshakespeare.txt --steps 60 --smoothness-every 5
TEST(Radii, TheStartOfARunDoesNotDecide) {
  const Trajectory run =
      at_full_radius(read_trajectory(std::filesystem::path(GLUON_BASELINES) / "scion_smoothness.csv")).trajectory;
  const auto by_default = predict(run, {}), without_first = predict(run, {.skip_first = 1});
  ASSERT_EQ(by_default.size(), 2u);
  for (const auto& [group, radius] : without_first) {
    EXPECT_GT(by_default.at(group), radius / 2) << group;
    EXPECT_LT(by_default.at(group), radius * 2) << group;
  }
}

// An outlier that is not at the start.
void spoil(LayerTrajectory& layer) {
  layer.samples.resize(9, layer.samples.back());
  layer.samples[5].smoothness *= 1000;
}

TEST(Radii, DoubtfulFitsDecideNothingUnlessThereAreNoOthers) {
  Trajectory trajectory{Estimator::kFull, {layer("a", "hidden", 0, 2, 0.1), layer("b", "hidden", 0, 2, 0.1)}};
  spoil(trajectory.layers[0]);
  GroupRadius radius = predict(trajectory).at(0);
  EXPECT_EQ(radius.layers, 1);
  EXPECT_NEAR(radius.predicted, 0.5, 1e-9);
  EXPECT_EQ(radius.doubt, "");
  spoil(trajectory.layers[1]);
  radius = predict(trajectory).at(0);
  EXPECT_EQ(radius.layers, 2);
  EXPECT_LT(radius.predicted, 0.05);
  EXPECT_EQ(radius.doubt,
            "none of its 2 fits can be trusted: in layer 'b' 89 % of the samples are below half of the line");
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

// The radii of the samples at full radius, of layers with these radii.
std::vector<std::vector<double>> full_radii(const std::vector<std::vector<double>>& radii) {
  Trajectory trajectory;
  for (const auto& of_layer : radii) {
    LayerTrajectory& added = trajectory.layers.emplace_back();
    for (const double radius : of_layer) added.samples.push_back({.step = 1, .radius = radius});
  }
  std::vector<std::vector<double>> kept;
  for (const LayerTrajectory& of_layer : at_full_radius(trajectory).trajectory.layers) {
    kept.emplace_back();
    for (const Sample& sample : of_layer.samples) kept.back().push_back(sample.radius);
  }
  return kept;
}

TEST(FullRadius, RemovesWarmupAndCooldownOfEachLayer) {
  using Radii = std::vector<std::vector<double>>;
  EXPECT_EQ(full_radii({{0.2, 1, 1.82, 2, 1.78, 0.4}}), (Radii{{1.82, 2}}));
  EXPECT_EQ(full_radii({{1, kFullRadius, kFullRadius - 1e-9}}), (Radii{{1, kFullRadius}}));
  EXPECT_EQ(full_radii({{100}, {1, 0.5}}), (Radii{{100}, {1}}));
  EXPECT_EQ(full_radii({{Sample::kMissing, Sample::kMissing}})[0].size(), 2u);  // samples without a radius stay
}

TEST(FullRadius, ARunThatWentBackEndsAtHalvedRadii) {
  const Trajectory trajectory{.layers = {{.samples = {{.radius = 8}, {.radius = 4}, {.radius = 2}, {.radius = 1.7}}}}};
  EXPECT_EQ(at_full_radius(trajectory).kept, 1);
  EXPECT_EQ(at_full_radius(trajectory, 2).kept, 3);
  EXPECT_EQ(at_full_radius(trajectory, 3).kept, 4);
  EXPECT_EQ(at_full_radius(trajectory, std::numeric_limits<int64_t>::max()).kept, 4);
  EXPECT_EQ(at_full_radius(trajectory, std::numeric_limits<int64_t>::min()).kept, 1);  // of a damaged facts.json
}

TEST(FullRadius, CountsTheSamples) {
  const FullRadiusSamples selection =
      at_full_radius({.layers = {layer("a", "hidden", 1, 1, 1), {.samples = {{.radius = 1}, {.radius = 0.5}}}}});
  EXPECT_EQ(selection.all, 5);
  EXPECT_EQ(selection.kept, 4);
}

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
