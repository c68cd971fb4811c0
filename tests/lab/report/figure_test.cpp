#include "lab/report/figure.h"

#include <cmath>
#include <limits>
#include <utility>

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

TEST(FigureSvg, DrawsRangesOfAFewUlps) {
  const double ulp = std::numeric_limits<double>::epsilon(), huge = std::numeric_limits<double>::max();
  const std::vector<double> ranges[] = {
      {1, 1 + ulp, 1},    {1, 1, 1},        {9.223372036854774e18, 9.223372036854775e18, 9.3e18},
      {huge, huge, huge}, {-huge, 0, huge}, {5e-324, 5e-324, 1e-323}};
  for (const auto& x : ranges) {
    for (const auto& y : ranges) {
      for (const bool log : {false, true}) {
        const std::string svg = figure_svg({.log_y = log, .series = {{.label = "s", .x = x, .y = y}}});
        EXPECT_LT(svg.size(), 100'000u);
        EXPECT_EQ(svg.find("nan"), std::string::npos) << x[0] << " " << y[0] << " " << log;
        EXPECT_EQ(svg.find("inf"), std::string::npos) << x[0] << " " << y[0] << " " << log;
      }
    }
  }
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

TEST(FigureSvg, IsXmlWithAnyName) {
  const std::string svg = figure_svg({.title = "\033[2J\xff<", .series = {{.label = "s", .x = {1, 2}, .y = {1, 2}}}});
  EXPECT_NE(svg.find("\\x1b[2J\\xff&lt;"), std::string::npos);
  EXPECT_EQ(svg.find('\033'), std::string::npos);
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
