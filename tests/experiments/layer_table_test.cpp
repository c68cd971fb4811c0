#include "experiments/layer_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gluon::experiments {
namespace {

LayerFit layer(const std::string& name, double l0, double l1, double gradient, double error) {
  return {.layer = name, .group = "hidden", .fit = {.l0 = l0, .l1 = l1, .mse_rel = error}, .gradient = gradient};
}

TEST(LayerTable, SpreadOfElevenNumbers) {
  std::vector<double> numbers = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  const Spread spread = spread_of(numbers);
  EXPECT_DOUBLE_EQ(spread.low, 1);
  EXPECT_DOUBLE_EQ(spread.median, 5);
  EXPECT_DOUBLE_EQ(spread.high, 9);
  EXPECT_EQ(text_of(spread), "5 (1 .. 9)");
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).median, 1.5);
  EXPECT_TRUE(std::isnan(spread_of({}).median));
}

TEST(LayerTable, TheShareOfL0IsTakenAtTheMedianGradient) {
  EXPECT_DOUBLE_EQ(share_of_l0(layer("a", 1, 2, 1.5, 0)), 0.25);
  EXPECT_DOUBLE_EQ(share_of_l0(layer("a", 0, 2, 1, 0)), 0);
  EXPECT_DOUBLE_EQ(share_of_l0(layer("a", 0, 0, 1, 0)), 0);
}

TEST(LayerTable, OneRowPerKindAndOneForAll) {
  TrajectoryFit fits;
  fits.layers = {layer("transformer.h.0.attn.c_q.weight", 0, 60, 1, 0.1),
                 layer("transformer.h.1.attn.c_q.weight", 0, 80, 1, 0.3),
                 layer("transformer.wte.weight", 0, 1.25, 1, 0.5)};
  const lab::Table table = layer_table("t", fits, fits, type_of);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0][0], "attn.c_q");
  EXPECT_EQ(table.rows[0][1], "2");
  EXPECT_EQ(table.rows[0][2], "70 (62 .. 78)");
  EXPECT_EQ(table.rows[0][5], "0.2 (0.12 .. 0.28)");
  EXPECT_EQ(table.rows[1][3], "0.8");
  EXPECT_EQ(table.rows[2][0], "all");
  EXPECT_EQ(table.rows[2][1], "3");
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
}

TEST(LayerTable, AFigureHasTheSamplesAndTheirLine) {
  const LayerTrajectory samples{
      .layer = "w",
      .samples = {{.step = 50, .smoothness = 3, .gradient = 0.5}, {.step = 100, .smoothness = 5, .gradient = 1}}};
  const lab::Figure figure = layer_figure("name", samples, {.l0 = 1, .l1 = 4});
  ASSERT_EQ(figure.series.size(), 2u);
  EXPECT_EQ(figure.series[0].x, (std::vector<double>{50, 100}));
  EXPECT_EQ(figure.series[0].y, (std::vector<double>{3, 5}));
  EXPECT_EQ(figure.series[1].y, (std::vector<double>{3, 5}));
}

TEST(LayerTable, FiguresOfTheMiddleAndTheLastLayerThatHaveFits) {
  Trajectory samples;
  TrajectoryFit fits;
  for (int i = 0; i < 25; ++i) {
    samples.layers.push_back({.layer = std::to_string(i), .samples = {{.step = 1, .smoothness = 1, .gradient = 1}}});
    if (i != 24) fits.layers.push_back(layer(std::to_string(i), 0, 1, 1, 0));
  }
  ASSERT_EQ(layer_figures("p", samples, fits).size(), 1u);
  EXPECT_EQ(layer_figures("p", samples, fits)[0].name, "p-12");
  fits.layers.push_back(layer("24", 0, 1, 1, 0));
  EXPECT_EQ(layer_figures("p", samples, fits)[1].name, "p-24");
}

}  // namespace
}  // namespace gluon::experiments
