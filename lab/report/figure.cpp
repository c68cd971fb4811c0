#include "lab/report/figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <set>

#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/printable.h"
#include "gluon/core/spec.h"
#include "lab/report/report_data.h"

namespace gluon::lab {
namespace {

constexpr double kWidth = 640, kHeight = 400;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr std::size_t kLegendEntries = 14;  // as many as fit
// Distinct for colour-blind readers (Okabe and Ito), as on the page.
constexpr std::array<const char*, 8> kColors = {"#0072b2", "#e07b00", "#0f9f74", "#c85fa0",
                                                "#8a6fd1", "#b39100", "#d0493a", "#3fa7b8"};

// Many series are usually ordered, for example by depth: a ramp from blue over green to orange.
std::string color_of(std::size_t index, std::size_t count) {
  if (count <= kColors.size()) return kColors[index];
  const double share = static_cast<double>(index) / static_cast<double>(count - 1);
  return join("hsl(", std::lround(265 - 235 * share), ",62%,45%)");
}

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

std::string at(double pixels) { return join(std::fixed, std::setprecision(1), pixels); }

struct Scale {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  bool log = false;

  bool shows(double value) const { return std::isfinite(value) && (!log || value > 0); }
  void include(double value) {
    if (!shows(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void close() {
    if (low > high) low = high = 1;
    // Within rounding it is one value: no tick would fit between the ends.
    const double size = std::max(std::abs(low), std::abs(high));
    using Limits = std::numeric_limits<double>;
    if (high - low > std::max(1e-9 * size, Limits::min())) return;
    const double margin = std::max(0.5, 1e-3 * size);
    low = log ? std::max(low / 2, Limits::denorm_min()) : std::max(low - margin, Limits::lowest());
    high = log ? std::min(high, Limits::max() / 2) * 2 : std::min(high + margin, Limits::max());
  }
  // 0 at the low end, 1 at the high one.
  double share(double value) const {
    if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value / 2 - low / 2) / (high / 2 - low / 2);  // half: the range may be larger than the largest number
  }
};

// `anchor` is the part of the text at x: start, middle or end.
std::string text_at(double x, double y, const std::string& text, const char* anchor, const std::string& more = "") {
  return join("<text x=\"", at(x), "\" y=\"", at(y), "\" text-anchor=\"", anchor, "\"", more, ">", escaped(text),
              "</text>\n");
}

std::string svg(const std::string& title, double width, double height, const std::string& body) {
  return join("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ",
              width, " ", height, "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
              text_at(width / 2, 24, title, "middle", " font-size=\"14\""), body, "</svg>\n");
}

class Plot {
 public:
  explicit Plot(const Figure& figure) : figure_(figure) {
    y_.log = figure.log_y;
    for (const FigureSeries& series : figure.series) {
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!x_.shows(series.x[i]) || !y_.shows(series.y[i])) continue;
        x_.include(series.x[i]);
        y_.include(series.y[i]);
      }
    }
    x_.close();
    y_.close();
  }

  std::string body() const { return axes() + curves() + legend(); }

 private:
  double px(double x) const { return kLeft + x_.share(x) * (kWidth - kLeft - kRight); }
  double py(double y) const { return kHeight - kBottom - y_.share(y) * (kHeight - kTop - kBottom); }

  std::string axes() const {
    std::string out;
    for (const double tick : ticks(x_.low, x_.high, false)) {
      out += join("<path d=\"M", at(px(tick)), " ", kTop, "V", kHeight - kBottom, "\" stroke=\"#ddd\"/>\n");
      out += text_at(px(tick), kHeight - kBottom + 16, rounded(tick), "middle");
    }
    for (const double tick : ticks(y_.low, y_.high, y_.log)) {
      out += join("<path d=\"M", kLeft, " ", at(py(tick)), "H", kWidth - kRight, "\" stroke=\"#ddd\"/>\n");
      out += text_at(kLeft - 6, py(tick) + 4, rounded(tick), "end");
    }
    out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 12, figure_.x_label, "middle");
    const double middle = (kTop + kHeight - kBottom) / 2;
    return out + text_at(16, middle, figure_.y_label, "middle", join(" transform=\"rotate(-90 16 ", at(middle), ")\""));
  }

  std::string curves() const {
    std::string out;
    for (std::size_t s = 0; s < figure_.series.size(); ++s) {
      const FigureSeries& series = figure_.series[s];
      const std::string color = color_of(s, figure_.series.size());
      std::string path;
      bool down = false;
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        const bool shown = x_.shows(series.x[i]) && y_.shows(series.y[i]);
        if (shown && series.dots) {
          out += join("<circle cx=\"", at(px(series.x[i])), "\" cy=\"", at(py(series.y[i])), "\" r=\"2\" fill=\"",
                      color, "\"/>\n");
        } else if (shown) {
          path += join(down ? "L" : "M", at(px(series.x[i])), " ", at(py(series.y[i])));
        }
        down = shown;
      }
      if (!path.empty()) {
        out += join("<path d=\"", path, "\" fill=\"none\" stroke-width=\"1.5\" stroke=\"", color, "\"/>\n");
      }
    }
    return out;
  }

  std::string legend() const {
    std::string out;
    if (figure_.series.size() < 2) return out;
    const std::size_t entries = std::min(figure_.series.size(), kLegendEntries);
    const auto line = [](std::size_t entry) { return kTop + 14 + 16 * static_cast<double>(entry); };
    for (std::size_t s = 0; s < entries; ++s) {
      const double y = line(s);
      out += join("<rect x=\"", kWidth - kRight - 18, "\" y=\"", y - 9, "\" width=\"10\" height=\"10\" fill=\"",
                  color_of(s, figure_.series.size()), "\"/>\n");
      out += text_at(kWidth - kRight - 24, y, figure_.series[s].label, "end");
    }
    if (entries < figure_.series.size()) {
      out +=
          text_at(kWidth - kRight - 24, line(entries), join("and ", figure_.series.size() - entries, " more"), "end");
    }
    return out;
  }

  const Figure& figure_;
  Scale x_, y_;
};

}  // namespace

std::vector<double> ticks(double low, double high, bool log) {
  std::vector<double> found;
  if (log) {
    for (double power = std::ceil(std::log10(low) - 1e-9); power <= std::log10(high) + 1e-9; ++power) {
      found.push_back(std::pow(10, power));
    }
    if (found.size() >= 2) return found;
    found.clear();
  }
  constexpr int kMost = 12;
  const double raw = high / 6 - low / 6;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  // Counted, because beyond 2^53 steps first + 1 is first again; there, and where the step is 0, the ends must do.
  for (int i = 0; i < kMost && std::isfinite(first); ++i) {
    const double tick = (first + i) * step;
    if (!std::isfinite(tick) || tick > high + 1e-9 * step || (!found.empty() && tick <= found.back())) break;
    found.push_back(tick);
  }
  if (found.empty()) found.push_back(low);
  return found;
}

std::string figure_svg(const Figure& figure) { return svg(figure.title, kWidth, kHeight, Plot(figure).body()); }

std::string figure_csv(const Figure& figure) {
  const auto cell = [](double value) { return std::isfinite(value) ? number_text(value) : std::string(); };
  std::string text = "series,x,y\n";
  for (const FigureSeries& series : figure.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      text += csv_row({series.label, cell(series.x[i]), cell(series.y[i])}) + "\n";
    }
  }
  return text;
}

std::string heatmap_svg(const std::string& title, const SweepTable& table) {
  GLUON_CHECK(table.groups.size() == 2, "figures: a heatmap needs a sweep over 2 groups, got ", table.groups.size());
  std::set<double> rows, columns;
  Scale values;
  for (const SweepCell& cell : table.cells) {
    rows.insert(cell.radii[0]);
    columns.insert(cell.radii[1]);
    values.include(cell.val);
  }
  values.close();
  constexpr double kCellWidth = 80, kCellHeight = 40, kTopSpace = 60, kLeftSpace = 100;
  std::string out;
  const auto place = [](const std::set<double>& all, double value) {
    return static_cast<double>(std::distance(all.begin(), all.find(value)));
  };
  for (const double radius : columns) {
    out += text_at(kLeftSpace + kCellWidth * (place(columns, radius) + 0.5), kTopSpace - 6, rounded(radius), "middle");
  }
  for (const double radius : rows) {
    out += text_at(kLeftSpace - 8, kTopSpace + kCellHeight * (place(rows, radius) + 0.5) + 4, rounded(radius), "end");
  }
  for (const SweepCell& cell : table.cells) {
    const double x = kLeftSpace + kCellWidth * place(columns, cell.radii[1]);
    const double y = kTopSpace + kCellHeight * place(rows, cell.radii[0]);
    const double good = std::isfinite(cell.val) ? 1 - values.share(cell.val) : 0;
    out += join("<rect x=\"", x, "\" y=\"", y, "\" width=\"", kCellWidth, "\" height=\"", kCellHeight,
                "\" stroke=\"white\" fill=\"#0072b2\" fill-opacity=\"", 0.08 + 0.6 * good, "\"/>\n");
    out += text_at(x + kCellWidth / 2, y + kCellHeight / 2 + 4,
                   std::isfinite(cell.val) ? rounded(cell.val) : "diverged", "middle");
  }
  const double width = kLeftSpace + kCellWidth * static_cast<double>(columns.size()) + 20;
  const double height = kTopSpace + kCellHeight * static_cast<double>(rows.size()) + 40;
  out += text_at(width / 2, height - 12, join("down: ", table.groups[0], ", across: ", table.groups[1]), "middle");
  return svg(title, std::max(width, 320.0), height, out);
}

}  // namespace gluon::lab
