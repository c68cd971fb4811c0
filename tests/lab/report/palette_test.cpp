#include "lab/report/palette.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

std::string source(const char* file) { return read_text(std::string(GLUON_WEB_SOURCES) + "/" + file, "test"); }

// The value of a variable of the light theme, which comes first.
std::string variable(const std::string& name) {
  const std::string text = source("theme.css");
  std::smatch found;
  return std::regex_search(text, found, std::regex("--" + name + ": ([^;]+);")) ? found[1].str() : "missing";
}

std::string joined(std::span<const double> values) {
  std::string text;
  for (const double value : values) text += join(text.empty() ? "" : ", ", value);
  return "[" + text + "]";
}

TEST(Palette, ColoursAreThoseOfThePage) {
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(run_color(i), variable("run-" + std::to_string(i))) << i;
  EXPECT_EQ(variable("run-10"), "missing");
  EXPECT_EQ(run_color(10), run_color(0));
  EXPECT_EQ(kInk, variable("ink"));
  EXPECT_EQ(kInkSoft, variable("ink-soft"));
  EXPECT_EQ(kGrid, variable("grid"));
  EXPECT_EQ(kAccent, variable("accent"));
  EXPECT_EQ(kFitColor, variable("fit"));
}

TEST(Palette, LinesAreThoseOfThePage) {
  const std::string text = source("chart_style.ts");
  for (const auto& [name, style] : {std::pair("line", LineStyle::kLine), std::pair("marked", LineStyle::kMarked),
                                    std::pair("faint", LineStyle::kFaint), std::pair("dashed", LineStyle::kDashed),
                                    std::pair("dots", LineStyle::kDots)}) {
    const LineLook look = line_look(style);
    const std::string line =
        join("  ", name, ": {width: ", look.width, ", alpha: ", look.alpha, ", marker: ", look.marker, "},\n");
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_NE(text.find("kDashed = " + joined(kDashed) + ";"), std::string::npos);
  EXPECT_NE(text.find(join("kMostMarkers = ", kMostMarkers, ";")), std::string::npos);
}

TEST(Palette, DashesAreThoseOfThePage) {
  std::string dashes;
  for (std::size_t i = 0; i < 50; i += 10) dashes += (dashes.empty() ? "" : ", ") + joined(run_dash(i));
  EXPECT_NE(source("palette.ts").find("kDashes: number[][] = [" + dashes + "];"), std::string::npos) << dashes;
  EXPECT_EQ(joined(run_dash(50)), joined(run_dash(0)));
  std::set<std::string> looks;
  for (std::size_t i = 0; i < 50; ++i) looks.insert(run_color(i) + joined(run_dash(i)));
  EXPECT_EQ(looks.size(), 50u);
}

TEST(Palette, GroupsHaveTheColoursOfThePage) {
  const std::string text = source("palette.ts");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, std::regex("kGroups = \\[([^\\]]+)\\]")));
  const std::string list = found[1].str();
  const std::regex name("'(\\w+)'");
  std::size_t index = 0;
  for (auto one = std::sregex_iterator(list.begin(), list.end(), name); one != std::sregex_iterator(); ++one, ++index) {
    EXPECT_EQ(group_color((*one)[1].str()), run_color(index)) << (*one)[1];
  }
  EXPECT_GE(index, 7u);
  EXPECT_EQ(group_color("ab"), run_color('a' + 'b'));
  EXPECT_NE(text.find("reduce((sum, letter) => sum + letter.charCodeAt(0), 0)"), std::string::npos);
}

TEST(Palette, TheShadesOfASweepAreThoseOfThePage) {
  // heatmap.cpp: 8 % of the accent in the worst cell, 60 % in the best.
  EXPECT_NE(source("sweep.ts").find("var(--accent) ${Math.round(8 + 52 * (1 - share))}%"), std::string::npos);
}

TEST(Palette, TheRampIsThatOfThePage) {
  EXPECT_NE(source("palette.ts").find("hsl(${Math.round(265 - 235 * share)} 62% var(--ramp-light))"),
            std::string::npos);
  EXPECT_EQ(variable("ramp-light"), "42%");
  EXPECT_EQ(ramp_color(0, 2), "#6029ae");  // hsl(265 62% 42%)
  EXPECT_EQ(ramp_color(1, 2), "#ae6b29");  // hsl(30 62% 42%)
  EXPECT_EQ(ramp_color(0, 1), ramp_color(0, 2));
}

}  // namespace
}  // namespace gluon::lab
