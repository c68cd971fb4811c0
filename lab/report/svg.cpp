#include "lab/report/svg.h"

#include <algorithm>
#include <iomanip>

#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/report/palette.h"

namespace gluon::lab {
namespace {

constexpr double kInch = 72;
constexpr double kLetter = 0.56;  // width of Helvetica's letters and digits, in fonts, on average
constexpr double kBold = 1.15;    // how much wider bold ones are

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {  // XML has no control characters, and its text is UTF-8
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace

FigureSize figure_size(FigureWidth width) {
  if (width == FigureWidth::kColumn) {
    return {.width = 3.3 * kInch, .plot_height = 120, .font = 7, .title = 8, .x_ticks = 6, .y_ticks = 5};
  }
  return {.width = 6.9 * kInch, .plot_height = 200, .font = 8, .title = 9, .x_ticks = 8, .y_ticks = 6};
}

FigureWidth parse_figure_width(const std::string& text) {
  GLUON_CHECK(text == "column" || text == "page", "report: --figure-width must be column or page, got '", text, "'");
  return text == "column" ? FigureWidth::kColumn : FigureWidth::kPage;
}

std::string at(double points) { return join(std::fixed, std::setprecision(2), points); }

double text_width(const std::string& text, double font) {
  return kLetter * font * static_cast<double>(std::ranges::count_if(text, begins_character));
}

std::string fitting(const std::string& text, double font, double width) {
  const std::string shown = printable(text);
  const auto room = static_cast<std::size_t>(std::max(width / (kLetter * font), 4.0));
  std::size_t characters = 0, bytes = 0;
  while (bytes < shown.size() && (characters < room || !begins_character(shown[bytes]))) {
    if (begins_character(shown[bytes++])) ++characters;
  }
  if (bytes == shown.size()) return shown;
  for (int i = 0; i < 2; ++i) {
    while (!begins_character(shown[--bytes])) {
    }
  }
  return shown.substr(0, bytes) + "\u2026";
}

std::string text_at(double x, double y, const std::string& text, const char* anchor, const std::string& more) {
  return join("<text x=\"", at(x), "\" y=\"", at(y), "\" text-anchor=\"", anchor, "\"", more, ">", escaped(text),
              "</text>\n");
}

std::string svg_document(const std::string& title, const FigureSize& size, double height, const std::string& body) {
  const double room = (size.width - 8) / kBold;
  const double font = std::clamp(size.title * room / std::max(text_width(title, size.title), 1.0), 5.5, size.title);
  return join("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", at(size.width / kInch), "in\" height=\"",
              at(height / kInch), "in\" viewBox=\"0 0 ", at(size.width), " ", at(height),
              "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"", size.font, "\" fill=\"", kInk, "\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
              text_at(size.width / 2, size.title + 3, fitting(title, font, room), "middle",
                      join(" font-size=\"", at(font), "\" font-weight=\"bold\"")),
              body, "</svg>\n");
}

}  // namespace gluon::lab
