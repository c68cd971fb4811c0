// SVG for papers: sizes in points (1/72 inch), text that fits, and nothing but basic shapes.

#pragma once

#include <string>

namespace gluon::lab {

/// How wide a figure is: one column of a paper with two (3.3 in), or the whole page (6.9 in).
enum class FigureWidth { kColumn, kPage };

struct FigureSize {
  double width;        // of the figure
  double plot_height;  // of the area inside the axes
  double font;
  double title;  // its font
  int x_ticks;   // about how many
  int y_ticks;
};

FigureSize figure_size(FigureWidth width);

/// "column" or "page". Throws InputError for another text.
FigureWidth parse_figure_width(const std::string& text);

/// A coordinate, with two digits after the point.
std::string at(double points);

/// About how wide `text` is in Helvetica.
double text_width(const std::string& text, double font);

/// `text` as it fits into `width`, with an ellipsis in place of its end where it does not.
std::string fitting(const std::string& text, double font, double width);

/// `anchor` is the part of the text at x: start, middle or end.
std::string text_at(double x, double y, const std::string& text, const char* anchor, const std::string& more = "");

/// The document: `title` on its top in at most `title_font`, smaller where it would not fit.
std::string svg_document(const std::string& title, const FigureSize& size, double height, const std::string& body);

}  // namespace gluon::lab
