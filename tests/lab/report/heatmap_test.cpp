#include "lab/report/heatmap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/lab/report/count_in.h"

namespace gluon::lab {
namespace {

TEST(Heatmap, OneCellPerRunAndAFrameAroundTheBest) {
  const ReportSweep sweep{"grid",
                          {{"hidden", "embedding"},
                           {{.radii = {1, 2}, .val = 3.25},
                            {.radii = {1, 4}, .val = std::nan("")},
                            {.radii = {2, 2}, .val = 3.5},
                            {.radii = {2, 4}, .val = std::nan("")}}},
                          {{}, {}, {}, {ReportRun{.status = {.state = RunState::kRunning}}, "not finished"}}};
  for (const FigureWidth width : {FigureWidth::kColumn, FigureWidth::kPage}) {
    const std::string svg = heatmap_svg(sweep, width);
    EXPECT_EQ(count(svg, "fill-opacity"), 4u);
    EXPECT_EQ(count(svg, "fill-opacity=\"0.60\""), 1u) << "the best";
    EXPECT_EQ(count(svg, "fill-opacity=\"0.08\""), 1u) << "the worst";
    EXPECT_EQ(count(svg, "stroke=\"#1c2430\""), 1u) << "its frame";
    EXPECT_NE(svg.find("font-weight=\"bold\">3.2500</text>"), std::string::npos);
    EXPECT_EQ(count(svg, ">no loss</text>"), 1u);
    EXPECT_EQ(count(svg, ">running</text>"), 1u);
  }
}

TEST(Heatmap, OneGroupIsARowAndThreeHaveRowsOfTwo) {
  const std::string line =
      heatmap_svg({"line", {{"hidden"}, {{.radii = {1}, .val = 3}, {.radii = {2}, .val = 2}}}, {}});
  EXPECT_EQ(count(line, "fill-opacity"), 2u);
  EXPECT_NE(line.find(">hidden</text>"), std::string::npos);
  const std::string three = heatmap_svg({"three", {{"a", "b", "c"}, {{.radii = {1, 0.5, 2}, .val = 3}}}, {}});
  EXPECT_NE(three.find(">1, 0.5</text>"), std::string::npos);
  EXPECT_NE(three.find(">a, b</text>"), std::string::npos);
}

TEST(Heatmap, ManyColumnsHaveNoTextThatWouldOverlap) {
  ReportSweep sweep{"wide", {{"hidden"}, {}}, {}};
  for (int i = 0; i < 100; ++i) sweep.table.cells.push_back({.radii = {1.0 + i}, .val = 3.0 + i});
  const std::string svg = heatmap_svg(sweep, FigureWidth::kColumn);
  EXPECT_EQ(count(svg, "fill-opacity"), 100u);
  EXPECT_EQ(count(svg, ">102.0000</text>"), 0u);
}

TEST(Heatmap, AllDiverged) {
  const std::string svg = heatmap_svg({"bad", {{"hidden"}, {{.radii = {1}, .val = std::nan("")}}}, {}});
  EXPECT_EQ(count(svg, "stroke=\"#1c2430\""), 0u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace gluon::lab
