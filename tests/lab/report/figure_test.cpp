#include "lab/report/figure.h"

#include <cmath>

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_EQ(ticks(0, 6, false), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ticks(-0.5, 100, false), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(ticks(0.5, 200, true), (std::vector<double>{1, 10, 100}));
  EXPECT_EQ(ticks(2, 8, true), (std::vector<double>{2, 3, 4, 5, 6, 7, 8}));
}

TEST(FigureSvg, OmitsPointsThatCannotBeDrawn) {
  Figure figure{.title = "a < b & c", .x_label = "x", .y_label = "y", .log_y = true};
  figure.series = {{.label = "dots", .x = {1, 2, 3, 4}, .y = {1, std::nan(""), 0, 10}, .dots = true},
                   {.label = "line", .x = {1, 2, 3, 4}, .y = {1, 2, std::nan(""), 4}}};
  const std::string svg = figure_svg(figure);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  // The gap interrupts the curve, which has two moves.
  const auto stroke = svg.find("fill=\"none\"");
  const auto curve = svg.rfind("<path", stroke);
  EXPECT_EQ(count(svg.substr(curve, stroke - curve), "M"), 2u);
}

TEST(FigureSvg, EmptyAndConstantSeries) {
  for (const Figure& figure : {Figure{}, Figure{.series = {{.label = "s", .x = {1, 2}, .y = {3, 3}}}}}) {
    EXPECT_EQ(figure_svg(figure).find("nan"), std::string::npos);
  }
}

TEST(FigureCsv, ContainsAllPoints) {
  const Figure figure{.series = {{.label = "a, \"b\"", .x = {1, 2}, .y = {0.5, std::nan("")}}}};
  EXPECT_EQ(figure_csv(figure), "series,x,y\n\"a, \"\"b\"\"\",1,0.5\n\"a, \"\"b\"\"\",2,\n");
}

TEST(Heatmap, OneCellPerRun) {
  const SweepTable table{{"hidden", "embedding"},
                         {{.radii = {1, 2}, .val = 3.25}, {.radii = {1, 4}, .val = std::nan("")}}};
  const std::string svg = heatmap_svg("grid", table);
  EXPECT_EQ(count(svg, "fill-opacity"), 2u);
  EXPECT_NE(svg.find("3.25"), std::string::npos);
  EXPECT_NE(svg.find("diverged"), std::string::npos);
  EXPECT_INPUT_ERROR((void)heatmap_svg("line", {{"hidden"}, {}}), "a heatmap needs a sweep over 2 groups, got 1");
}

TEST(Figure, LegendCountsOmittedSeries) {
  Figure figure;
  for (int i = 0; i < 20; ++i) figure.series.push_back({.label = std::to_string(i), .x = {1, 2}, .y = {1, 2}});
  EXPECT_NE(figure_svg(figure).find(">and 6 more</text>"), std::string::npos);
  figure.series.resize(14);
  EXPECT_EQ(figure_svg(figure).find(" more</text>"), std::string::npos);
}

}  // namespace
}  // namespace gluon::lab
