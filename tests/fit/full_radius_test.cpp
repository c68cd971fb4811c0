#include "gluon/fit/full_radius.h"

#include <gtest/gtest.h>

namespace gluon {
namespace {

LayerTrajectory layer_with(const std::vector<double>& radii) {
  LayerTrajectory layer{.layer = "w"};
  for (const double radius : radii) layer.samples.push_back({.step = 1, .radius = radius});
  return layer;
}

TEST(FullRadius, RemovesWarmupAndCooldown) {
  const FullRadiusSamples selection = at_full_radius({.layers = {layer_with({0.1, 0.5, 0.91, 1, 0.89, 0.2})}});
  EXPECT_EQ(selection.all, 6);
  EXPECT_EQ(selection.kept, 2);
  EXPECT_EQ(selection.trajectory.layers[0].samples[0].radius, 0.91);
}

TEST(FullRadius, NineTenthsOfTheLargestStay) {
  EXPECT_EQ(at_full_radius({.layers = {layer_with({1, kFullRadius, kFullRadius - 1e-9})}}).kept, 2);
}

TEST(FullRadius, KeepsSamplesWithoutARadius) {
  const FullRadiusSamples selection = at_full_radius({.layers = {layer_with({Sample::kMissing, Sample::kMissing})}});
  EXPECT_EQ(selection.kept, 2);
}

TEST(FullRadius, LargestRadiusIsPerLayer) {
  const FullRadiusSamples selection = at_full_radius({.layers = {layer_with({100}), layer_with({1, 0.5})}});
  EXPECT_EQ(selection.trajectory.layers[0].samples.size(), 1u);
  EXPECT_EQ(selection.trajectory.layers[1].samples.size(), 1u);
}

}  // namespace
}  // namespace gluon
