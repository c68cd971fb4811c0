// Colours, dashes and lines of the figures: those of the page (web/src/palette.ts, chart_style.ts and theme.css, its light
// version). tests/lab/report/palette_test.cpp fails when the two differ.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace gluon::lab {

inline constexpr const char* kInk = "#1c2430";
inline constexpr const char* kInkSoft = "#5a6675";
inline constexpr const char* kGrid = "#e3e8ed";
inline constexpr const char* kAccent = "#0a6fb5";
inline constexpr const char* kFitColor = "#6d737d";

/// marked: a few measured points; faint: a noisy line beside a better one.
enum class LineStyle { kLine, kMarked, kFaint, kDashed, kDots };

/// In pixels of the page.
struct LineLook {
  double width;
  double alpha;
  double marker;  // its diameter; 0: none
};

LineLook line_look(LineStyle style);

inline constexpr double kDashed[] = {6, 4};  // of LineStyle::kDashed
inline constexpr std::size_t kMostMarkers = 60;

/// The colour of a run by its place in the report; ten differ.
std::string run_color(std::size_t index);

/// The dash of a run's lines in pixels of the page; empty: a solid line. Every ten runs have another one.
std::span<const double> run_dash(std::size_t index);

/// The same colour for a group of layers everywhere.
std::string group_color(std::string_view group);

/// `index` of `count` on a ramp from blue over green to orange: depth in a network.
std::string ramp_color(std::size_t index, std::size_t count);

}  // namespace gluon::lab
