#include "lab/report/figure.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "lab/report/axis.h"
#include "lab/report/palette.h"
#include "lab/report/thin.h"

namespace gluon::lab {
namespace {

constexpr std::size_t kLegendEntries = 14;
constexpr std::size_t kMostPoints = 2000;  // of one series
constexpr double kSubtitleLine = 1.25;     // in fonts
constexpr double kPixel = 0.6;             // of the page, in points: a figure is smaller than the page's charts
constexpr double kLoneDot = 6;             // pixels of a point without neighbours

std::string stroke_of(const FigureSeries& series) {
  const LineLook look = line_look(series.style);
  const std::span<const double> parts =
      series.style == LineStyle::kDashed ? std::span<const double>(kDashed) : series.dash;
  std::string dash;
  for (const double part : parts) dash += join(dash.empty() ? "" : " ", part * kPixel);
  return join(" fill=\"none\" stroke=\"", series.color, "\" stroke-width=\"", look.width * kPixel, "\"",
              look.alpha < 1 ? join(" stroke-opacity=\"", look.alpha, "\"") : "",
              dash.empty() ? "" : join(" stroke-dasharray=\"", dash, "\""), " stroke-linejoin=\"round\"");
}

std::string dot_at(double x, double y, const FigureSeries& series, double pixels) {
  const double alpha = line_look(series.style).alpha;
  return join("<circle cx=\"", at(x), "\" cy=\"", at(y), "\" r=\"", pixels * kPixel / 2, "\" fill=\"", series.color,
              "\"", alpha < 1 ? join(" fill-opacity=\"", alpha, "\"") : "", "/>\n");
}

// The legend: rows of entries below the chart, each with a piece of its line.
class Legend {
 public:
  Legend(const Figure& figure, const FigureSize& size, std::size_t outside) : size_(size) {
    std::set<std::string> labels, kinds;
    for (const FigureSeries& series : figure.series) {
      if (series.kind.empty() || !kinds.insert(series.kind).second) continue;
      add(series.kind, FigureSeries{.label = {}, .color = kInkSoft, .style = series.style});
    }
    for (const FigureSeries& series : figure.series) labels.insert(series.label);
    const std::size_t count = labels.size();
    // Where kinds are explained apart, the sample shows colour and dash only. The title says what a single one is.
    for (const FigureSeries& series : figure.series) {
      if (count < 2 || labels.size() + kLegendEntries <= count || labels.erase(series.label) == 0) continue;
      FigureSeries sample{.label = {}, .color = series.color, .dash = series.dash, .style = series.style};
      if (!series.kind.empty()) sample.style = LineStyle::kLine;
      add(series.label, sample);
    }
    if (count > kLegendEntries) add(join("and ", count - kLegendEntries, " more"));
    if (outside > 0) add(join(outside, outside == 1 ? " value is" : " values are", " outside"));
  }

  double height() const { return rows_ * row() + (rows_ > 0 ? 3 : 0); }
  std::string body(double y) const { return join("<g transform=\"translate(0 ", at(y), ")\">\n", body_, "</g>\n"); }

 private:
  static constexpr double kMargin = 8, kPiece = 18, kGap = 4;

  double row() const { return 1.45 * size_.font; }

  void add(const std::string& label, const std::optional<FigureSeries>& sample = std::nullopt) {
    const double piece = sample ? kPiece + kGap : 0;
    const std::string text = fitting(label, size_.font, size_.width - 2 * kMargin - piece);
    const double width = piece + text_width(text, size_.font);
    if (rows_ == 0) rows_ = 1;
    if (x_ > kMargin && x_ + width > size_.width - kMargin) {
      x_ = kMargin;
      ++rows_;
    }
    const double y = rows_ * row(), middle = y - 0.33 * size_.font;
    if (sample) {
      const LineLook look = line_look(sample->style);
      if (look.width > 0) {
        body_ += join("<path d=\"M", at(x_), " ", at(middle), "h", kPiece, "\"", stroke_of(*sample), "/>\n");
      }
      if (look.marker > 0) body_ += dot_at(x_ + kPiece / 2, middle, *sample, look.marker);
    }
    body_ += text_at(x_ + piece, y, text, "start");
    x_ += width + 12;
  }

  const FigureSize& size_;
  std::string body_;
  double x_ = kMargin;
  int rows_ = 0;
};

class Plot {
 public:
  Plot(const Figure& figure, const FigureSize& size) : figure_(figure), size_(size) {
    x_.whole = figure.whole_x;
    x_.log = figure.log_x;
    y_.log = figure.log_y;
    std::vector<double> values;
    for (const FigureSeries& series : figure.series) {
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!x_.shows(series.x[i]) || !y_.shows(series.y[i])) continue;
        x_.include(series.x[i]);
        y_.include(series.y[i]);
        values.push_back(series.y[i]);
      }
    }
    if (const auto fence = fence_of(std::move(values), y_.log)) {
      y_.low = fence->low;
      y_.high = fence->high;
      outside_ = fence->outside;
    }
    x_.close();
    y_.close();
    y_.pad();
    top_ = size.title + 10 + kSubtitleLine * size.font * static_cast<double>(figure.subtitles.size());
    bottom_ = top_ + size.plot_height;
    double widest = 0;
    for (const double tick : y_.ticks(size.y_ticks)) {
      widest = std::max(widest, text_width(tick_text(tick), size.font));
    }
    left_ = size.font + 8 + widest + 4;
    right_ = size.width - 10;
  }

  std::string svg() const {
    const Legend legend(figure_, size_, outside_);
    const double labels = bottom_ + 2.6 * size_.font + 4;
    const double height = labels + legend.height() + 6;
    return svg_document(figure_.title, size_, height, subtitles() + axes() + curves() + legend.body(labels));
  }

 private:
  double px(double x) const { return left_ + x_.share(x) * (right_ - left_); }
  double py(double y) const { return bottom_ - y_.share(y) * (bottom_ - top_); }

  std::string subtitles() const {
    std::string out;
    double y = size_.title + 4;
    for (const std::string& line : figure_.subtitles) {
      y += kSubtitleLine * size_.font;
      out += text_at(size_.width / 2, y, fitting(line, size_.font, size_.width - 8), "middle",
                     join(" fill=\"", kInkSoft, "\""));
    }
    return out;
  }

  std::string axes() const {
    const std::string soft = join(" fill=\"", kInkSoft, "\"");
    const auto line = [](const std::string& path, const char* color) {
      return join("<path d=\"", path, "\" fill=\"none\" stroke=\"", color, "\" stroke-width=\"0.5\"/>\n");
    };
    std::string out;
    double free_from = 0;  // where the next label of x may begin
    for (const double tick : x_.ticks(size_.x_ticks)) {
      const std::string text = tick_text(tick);
      const double half = text_width(text, size_.font) / 2;
      out += line(join("M", at(px(tick)), " ", at(top_), "V", at(bottom_)), kGrid);
      if (px(tick) - half < free_from) continue;
      out += text_at(std::min(px(tick), size_.width - half - 1), bottom_ + size_.font + 2, text, "middle", soft);
      free_from = px(tick) + half + 4;
    }
    for (const double tick : y_.ticks(size_.y_ticks)) {
      out += line(join("M", at(left_), " ", at(py(tick)), "H", at(right_)), kGrid);
      out += text_at(left_ - 4, py(tick) + 0.35 * size_.font, tick_text(tick), "end", soft);
    }
    out += line(join("M", at(left_), " ", at(top_), "V", at(bottom_), "H", at(right_)), kInkSoft);
    out += text_at((left_ + right_) / 2, bottom_ + 2.3 * size_.font + 2, figure_.x_label, "middle", soft);
    const double x = size_.font + 2, y = (top_ + bottom_) / 2;
    return out +
           text_at(x, y, figure_.y_label, "middle", join(soft, " transform=\"rotate(-90 ", at(x), " ", at(y), ")\""));
  }

  // Outliers are cut off at the frame; dots on it are whole.
  std::string curves() const {
    constexpr double kSpill = 3;
    std::string out;
    for (const FigureSeries& series : figure_.series) out += curve(series);
    if (outside_ == 0) return out;
    return join("<clipPath id=\"frame\"><rect x=\"", at(left_ - kSpill), "\" y=\"", at(top_ - kSpill), "\" width=\"",
                at(right_ - left_ + 2 * kSpill), "\" height=\"", at(bottom_ - top_ + kSpill),
                "\"/></clipPath>\n<g clip-path=\"url(#frame)\">\n", out, "</g>\n");
  }

  std::string curve(const FigureSeries& series) const {
    const LineLook look = line_look(series.style);
    const auto shows = [&](std::size_t i) { return x_.shows(series.x[i]) && y_.shows(series.y[i]); };
    const std::vector<std::size_t> kept = thin(series.y, kMostPoints);
    const auto known = static_cast<std::size_t>(std::ranges::count_if(kept, shows));
    const std::size_t every = series.style == LineStyle::kMarked ? (known + kMostMarkers - 1) / kMostMarkers : 1;
    std::string path, dots;
    std::size_t number = 0;  // among the known points
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const std::size_t i = kept[k];
      if (!shows(i)) continue;
      const bool follows = k > 0 && shows(kept[k - 1]);
      const bool goes_on = k + 1 < kept.size() && shows(kept[k + 1]);
      const bool marked = look.marker > 0 && (number % every == 0 || number + 1 == known);
      const double x = px(series.x[i]), y = py(series.y[i]);
      ++number;
      if (look.width > 0 && (follows || goes_on)) path += join(follows ? "L" : "M", at(x), " ", at(y));
      if (marked || (!follows && !goes_on)) dots += dot_at(x, y, series, look.marker > 0 ? look.marker : kLoneDot);
    }
    return (path.empty() ? "" : join("<path d=\"", path, "\"", stroke_of(series), "/>\n")) + dots;
  }

  const Figure& figure_;
  const FigureSize& size_;
  std::size_t outside_ = 0;
  Axis x_, y_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
};

}  // namespace

std::string figure_svg(const Figure& figure, FigureWidth width) {
  const FigureSize size = figure_size(width);
  return Plot(figure, size).svg();
}

std::string figure_csv(const Figure& figure) {
  const auto cell = [](double value) { return std::isfinite(value) ? number_text(value) : std::string(); };
  std::string text = "series,x,y\n";
  for (const FigureSeries& series : figure.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      text += csv_row({series.full_name(), cell(series.x[i]), cell(series.y[i])}) + "\n";
    }
  }
  return text;
}

}  // namespace gluon::lab
