// Figure: one chart for a paper, as SVG and as the CSV of its points.

#pragma once

#include <string>
#include <vector>

#include "lab/sweep/sweep_csv.h"

namespace gluon::lab {

struct FigureSeries {
  std::string label;
  std::vector<double> x;
  std::vector<double> y;
  bool dots = false;  // else a line
};

struct Figure {
  std::string name;  // of its files, without extension
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;
  std::vector<FigureSeries> series;
};

/// 640 x 400, black on white, fonts by name. Points that are not finite, on a log scale also those not above 0, are
/// left out and cut the line.
std::string figure_svg(const Figure& figure);

/// Columns series, x, y; all points, those that are not finite as empty cells.
std::string figure_csv(const Figure& figure);

/// The heatmap of a sweep over two groups, the first downwards. Throws InputError for another number of groups.
std::string heatmap_svg(const std::string& title, const SweepTable& table);

/// Where to put ticks between `low` and `high`: multiples of 1, 2 or 5 times a power of ten, on a log scale powers of
/// ten, or the former when there are fewer than two of these.
std::vector<double> ticks(double low, double high, bool log);

}  // namespace gluon::lab
