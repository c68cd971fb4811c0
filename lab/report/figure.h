// Figure: one chart, written as SVG and as a CSV of its points. It looks as on the page (palette.h).

#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/palette.h"
#include "lab/report/svg.h"

namespace gluon::lab {

struct FigureSeries {
  std::string label;   // a run, a group, a quantity
  std::string kind{};  // which of its lines: training, validation
  std::vector<double> x{};
  std::vector<double> y{};
  std::string color{};
  std::span<const double> dash{};  // in pixels of the page; empty: solid
  LineStyle style = LineStyle::kLine;

  /// "runs/a, training"
  std::string full_name() const { return kind.empty() ? label : label + ", " + kind; }
};

struct Figure {
  std::string name;  // name of its files, without extension
  std::string title;
  std::vector<std::string> subtitles{};  // lines below it, in the font of the axes
  std::string x_label = "steps";
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  bool whole_x = true;  // the ticks of x are whole numbers
  std::vector<FigureSeries> series;
};

/// On white, fonts by name, the legend below: a colour for each label, a kind of line for each kind. Points that are not
/// finite, or not above 0 on a log scale, are omitted and interrupt the line; a point without neighbours is a dot. Long
/// series are thinned (thin.h). Outliers are outside, and the legend counts them (fence_of).
std::string figure_svg(const Figure& figure, FigureWidth width = FigureWidth::kPage);

/// Columns series, x, y; all points, with empty cells for values that are not finite.
std::string figure_csv(const Figure& figure);

}  // namespace gluon::lab
