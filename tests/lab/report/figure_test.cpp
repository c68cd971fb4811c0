#include "lab/report/figure.h"

#include <cmath>
#include <limits>
#include <utility>

#include "gluon/core/check.h"
#include "tests/expect_error.h"
#include "tests/lab/report/count_in.h"

namespace gluon::lab {
namespace {

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
  figure.series = {{.label = "dots", .x = {1, 2, 3, 4}, .y = {1, std::nan(""), 0, 10}, .style = LineStyle::kDots},
                   {.label = "line", .x = {1, 2, 3, 4, 5}, .y = {1, 2, std::nan(""), 4, 3}}};
  const std::string svg = figure_svg(figure);
  EXPECT_EQ(count(svg, "<circle"), 3u) << "two, and one in the legend";
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  // The gap interrupts the curve, which has two moves.
  const auto stroke = svg.find("stroke-linejoin");
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

TEST(FigureSvg, APointWithoutNeighboursIsADot) {
  const double gap = std::nan("");
  const auto dots = [&](std::vector<double> y) {
    FigureSeries series{.label = "s", .x = {1, 2, 3, 4, 5}, .y = std::move(y), .color = "#123456"};
    series.x.resize(series.y.size());
    return count(figure_svg({.series = {series}}), "<circle");
  };
  EXPECT_EQ(dots({3}), 1u);
  EXPECT_EQ(dots({3, 4}), 0u);
  EXPECT_EQ(dots({3, gap, 4, 5, gap}), 1u);
  EXPECT_EQ(dots({gap, 3, gap, 4, gap}), 2u);
}

TEST(FigureSvg, HasTheWidthsOfAPaper) {
  const Figure figure{.title = "a title", .series = {{.label = "s", .x = {1, 2}, .y = {1, 2}}}};
  EXPECT_NE(figure_svg(figure, FigureWidth::kColumn).find("width=\"3.30in\""), std::string::npos);
  EXPECT_NE(figure_svg(figure, FigureWidth::kPage).find("width=\"6.90in\""), std::string::npos);
  EXPECT_NE(figure_svg(figure, FigureWidth::kColumn).find("font-size=\"7\""), std::string::npos);
  EXPECT_EQ(parse_figure_width("column"), FigureWidth::kColumn);
  EXPECT_EQ(parse_figure_width("page"), FigureWidth::kPage);
  EXPECT_INPUT_ERROR(parse_figure_width("wide"), "--figure-width must be column or page, got 'wide'");
}

TEST(FigureSvg, StepsAreWholeNumbers) {
  Figure figure{.series = {{.label = "s", .x = {1, 2, 3}, .y = {1, 2, 3}}}};
  EXPECT_EQ(figure_svg(figure).find(">1.5</text>"), figure_svg(figure).rfind(">1.5</text>")) << "only on the y axis";
  figure.whole_x = false;
  EXPECT_NE(figure_svg(figure).find(">1.5</text>"), figure_svg(figure).rfind(">1.5</text>"));
}

TEST(Figure, OnALogAxisEqualRatiosAreEqualDistances) {
  const FigureSeries series{.label = "s", .x = {0.01, 0.1, 1}, .y = {1, 2, 3}, .style = LineStyle::kDots};
  const std::string svg = figure_svg({.log_x = true, .whole_x = false, .series = {series}});
  std::vector<double> places;
  for (std::size_t at = svg.find("cx=\""); at != std::string::npos; at = svg.find("cx=\"", at + 1)) {
    places.push_back(std::stod(svg.substr(at + 4)));
  }
  ASSERT_EQ(places.size(), 3u);
  EXPECT_NEAR(places[1] - places[0], places[2] - places[1], 0.02);
}

TEST(FigureSvg, LongSeriesAreThinnedAndKeepTheirSpikes) {
  FigureSeries series{.label = "s", .color = "#123456"};
  for (int i = 0; i < 200'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 123'456 ? 100 : std::sin(i));
  }
  const std::string svg = figure_svg({.series = {series}});
  EXPECT_LT(svg.size(), 60'000u);
  EXPECT_NE(svg.find(">1 value is outside</text>"), std::string::npos);
}

TEST(FigureSvg, OutliersAreCountedAndCutOff) {
  FigureSeries series{.label = "s", .color = "#123456"};
  for (int i = 0; i < 20; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 0 ? 1000 : 3 + 0.1 * i);
  }
  std::string svg = figure_svg({.series = {series}});
  EXPECT_NE(svg.find("clip-path"), std::string::npos);
  EXPECT_NE(svg.find(">1 value is outside</text>"), std::string::npos);
  EXPECT_EQ(svg.find(">1000</text>"), std::string::npos);
  series.y[0] = 3;
  svg = figure_svg({.series = {series}});
  EXPECT_EQ(svg.find("clip-path"), std::string::npos);
  EXPECT_EQ(svg.find("outside</text>"), std::string::npos);
}

TEST(FigureSvg, MarksMeasuredPointsButNotTooMany) {
  FigureSeries series{.label = "s", .color = "#123456", .style = LineStyle::kMarked};
  for (int i = 0; i < 1000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 7);
  }
  EXPECT_LE(count(figure_svg({.series = {series}}), "<circle"), kMostMarkers + 1);
  series.x.resize(5);
  series.y.resize(5);
  EXPECT_EQ(count(figure_svg({.series = {series}}), "<circle"), 5u);
}

TEST(Figure, LooksOfLines) {
  const std::vector<double> dash = {7, 4};
  Figure figure;
  const auto line = [](const std::string& label, const std::string& kind, const std::string& color) {
    return FigureSeries{.label = label, .kind = kind, .x = {1, 2}, .y = {1, 2}, .color = color};
  };
  figure.series = {line("a", "training", "#111111"), line("a", "validation", "#222222"),
                   line("b", "validation", "#333333")};
  figure.series[0].style = LineStyle::kFaint;
  figure.series[1].dash = dash;
  const std::string svg = figure_svg(figure);
  const std::string faint = "stroke-width=\"0.66\" stroke-opacity=\"0.6\"";
  EXPECT_EQ(count(svg, "stroke=\"#111111\" " + faint), 1u);
  EXPECT_EQ(count(svg, join("stroke=\"", kInkSoft, "\" ", faint)), 1u) << "the kinds are explained";
  EXPECT_EQ(count(svg, "stroke=\"#222222\" stroke-width=\"1.08\" stroke-dasharray=\"4.2 2.4\""), 1u);
  EXPECT_EQ(count(svg, "stroke=\"#111111\" stroke-width=\"1.08\""), 1u) << "in the legend";
  for (const char* entry : {">training<", ">validation<", ">a<", ">b<"}) EXPECT_EQ(count(svg, entry), 1u) << entry;
}

TEST(Figure, LegendCountsOmittedSeries) {
  Figure figure;
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i);
    figure.series.push_back({.label = name, .x = {1, 2}, .y = {1, 2}});
  }
  EXPECT_NE(figure_svg(figure).find(">and 6 more</text>"), std::string::npos);
  figure.series.resize(14);
  EXPECT_EQ(figure_svg(figure).find(" more</text>"), std::string::npos);
}

TEST(FigureText, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(fitting("short", 8, 100), "short");
  const std::string cut = fitting("ÄÖÜäöüßÄÖÜäöüß", 8, 45);
  EXPECT_EQ(cut, "ÄÖÜäöüßÄ…");
  EXPECT_LE(text_width(cut, 8), 45);
}

}  // namespace
}  // namespace gluon::lab
