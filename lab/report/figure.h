// Figure: one chart, written as SVG and as a CSV of its points.

#pragma once

#include <string>
#include <vector>

#include "lab/sweep/sweep.h"

namespace gluon::lab {

struct FigureSeries {
  std::string label;
  std::vector<double> x;
  std::vector<double> y;
  bool dots = false;  // else a line
};

struct Figure {
  std::string name;  // name of its files, without extension
  std::string title;
  std::string x_label = "steps";
  std::string y_label;
  bool log_y = false;
  std::vector<FigureSeries> series;
};

/// 640 x 400, black on white, fonts by name. Points that are not finite, or not above 0 on a log scale, are omitted and
/// interrupt the line.
std::string figure_svg(const Figure& figure);

/// Columns series, x, y; all points, with empty cells for values that are not finite.
std::string figure_csv(const Figure& figure);

/// The heatmap of a sweep over two groups, one row per radius of the first. Throws InputError for another number of
/// groups.
std::string heatmap_svg(const std::string& title, const SweepTable& table);

/// Positions of ticks between `low` and `high`: multiples of 1, 2 or 5 times a power of ten. On a log scale powers of
/// ten, if there are at least two. Few, ascending and finite for every finite range.
std::vector<double> ticks(double low, double high, bool log);

}  // namespace gluon::lab
