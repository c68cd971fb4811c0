#include "lab/report/heatmap.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <set>

#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "lab/report/palette.h"

namespace gluon::lab {
namespace {

constexpr double kPalest = 0.08, kStrongest = 0.6;  // of the accent in the worst and the best cell
constexpr double kWidestCell = 80, kTallestCell = 30, kSmallestFont = 4;

using Radii = std::vector<double>;

Radii row_of(const SweepCell& cell) { return {cell.radii.begin(), cell.radii.end() - 1}; }

std::string radii_text(const Radii& radii) {
  std::string text;
  for (const double radius : radii) text += (text.empty() ? "" : ", ") + rounded(radius);
  return text;
}

template <typename Values, typename Value> double place(const Values& values, const Value& value) {
  return static_cast<double>(std::distance(values.begin(), values.find(value)));
}

class Heatmap {
 public:
  Heatmap(const ReportSweep& sweep, const FigureSize& size) : sweep_(sweep), size_(size) {
    for (const SweepCell& cell : sweep.table.cells) {
      rows_.insert(row_of(cell));
      columns_.insert(cell.radii.back());
      if (std::isfinite(cell.val)) ranked_.insert(cell.val);
    }
    for (const Radii& row : rows_) left_ = std::max(left_, text_width(radii_text(row), size.font));
    left_ = std::max(left_, text_width(down(), size.font)) + 10;
    top_ = size.title + 2 * 1.6 * size.font + 10;
    const double room = size.width - left_ - 8;
    cell_width_ = std::min(kWidestCell, room / static_cast<double>(columns_.size()));
    cell_height_ = std::clamp(0.5 * cell_width_, 1.6 * size.font, kTallestCell);
    left_ += std::max(0.0, (room - cell_width_ * static_cast<double>(columns_.size())) / 2);
  }

  std::string svg() const {
    const double height = top_ + cell_height_ * static_cast<double>(rows_.size()) + 8;
    return svg_document(sweep_.name + ": validation loss", size_, height, labels() + cells());
  }

 private:
  std::string down() const {
    std::string text;
    for (std::size_t i = 0; i + 1 < sweep_.table.groups.size(); ++i)
      text += (i == 0 ? "" : ", ") + sweep_.table.groups[i];
    return text;
  }

  // In the middle of a cell or above it, in a font that fits.
  std::string text_in(double x, double y, const std::string& text, const std::string& more = "") const {
    const double font = std::min(size_.font, size_.font * (cell_width_ - 2) / text_width(text, size_.font));
    if (font < kSmallestFont) return {};
    return text_at(x, y, text, "middle", join(" font-size=\"", at(font), "\"", more));
  }

  std::string labels() const {
    const std::string soft = join(" fill=\"", kInkSoft, "\"");
    const double across = left_ + cell_width_ * static_cast<double>(columns_.size()) / 2;
    std::string out = text_at(across, top_ - 1.6 * size_.font - 4, sweep_.table.groups.back(), "middle", soft);
    out += text_at(left_ - 5, top_ - 4, down(), "end", soft);
    for (const double radius : columns_) {
      out += text_in(left_ + cell_width_ * (place(columns_, radius) + 0.5), top_ - 4, rounded(radius));
    }
    for (const Radii& row : rows_) {
      out += text_at(left_ - 5, top_ + cell_height_ * (place(rows_, row) + 0.5) + 0.35 * size_.font, radii_text(row),
                     "end");
    }
    return out;
  }

  std::string words(std::size_t i) const {
    const double val = sweep_.table.cells[i].val;
    if (std::isfinite(val)) {
      const bool plain = std::abs(val) < 1e4 && std::abs(val) >= 1e-4;
      return plain ? join(std::fixed, std::setprecision(4), val) : rounded(val, 5);
    }
    const bool has_run = i < sweep_.cells.size() && sweep_.cells[i].run;
    const RunState state = has_run ? sweep_.cells[i].run->status.state : RunState::kUnknown;
    if (state == RunState::kUnknown || state == RunState::kFinished) return "no loss";
    return std::string(run_state_name(state));
  }

  std::string cells() const {
    const auto best = best_cell(sweep_.table.cells);
    std::string out, frame;
    for (std::size_t i = 0; i < sweep_.table.cells.size(); ++i) {
      const SweepCell& cell = sweep_.table.cells[i];
      const double x = left_ + cell_width_ * place(columns_, cell.radii.back());
      const double y = top_ + cell_height_ * place(rows_, row_of(cell));
      const auto box = [&](double inset, const std::string& look) {
        return join("<rect x=\"", at(x + inset), "\" y=\"", at(y + inset), "\" width=\"", at(cell_width_ - 2 * inset),
                    "\" height=\"", at(cell_height_ - 2 * inset), "\" rx=\"1.5\"", look, "/>\n");
      };
      const bool finite = std::isfinite(cell.val);
      const double worst = ranked_.size() > 1 ? static_cast<double>(ranked_.size() - 1) : 1;
      const double strength = finite ? kStrongest - (kStrongest - kPalest) * place(ranked_, cell.val) / worst : 0;
      out += box(0.7, join(" fill=\"", kAccent, "\" fill-opacity=\"", at(strength), "\" stroke=\"", kGrid,
                           "\" stroke-width=\"0.5\""));
      if (best == i) frame = box(1.5, join(" fill=\"none\" stroke=\"", kInk, "\" stroke-width=\"1\""));
      out += text_in(x + cell_width_ / 2, y + cell_height_ / 2 + 0.35 * size_.font, words(i),
                     best == i ? " font-weight=\"bold\""
                     : finite  ? ""
                               : join(" fill=\"", kInkSoft, "\""));
    }
    return out + frame;
  }

  const ReportSweep& sweep_;
  const FigureSize& size_;
  std::set<Radii> rows_;
  std::set<double> columns_, ranked_;
  double left_ = 0, top_ = 0, cell_width_ = 0, cell_height_ = 0;
};

}  // namespace

std::string heatmap_svg(const ReportSweep& sweep, FigureWidth width) {
  const FigureSize size = figure_size(width);
  return Heatmap(sweep, size).svg();
}

std::string heatmap_csv(const ReportSweep& sweep) {
  const SweepTable& table = sweep.table;
  std::vector<std::string> header = table.groups;
  header.push_back("val");
  std::string text = csv_row(header) + "\n";
  for (const SweepCell& cell : table.cells) {
    std::vector<std::string> row;
    for (const double radius : cell.radii) row.push_back(number_text(radius));
    row.push_back(std::isfinite(cell.val) ? number_text(cell.val) : "");
    text += csv_row(row) + "\n";
  }
  return text;
}

}  // namespace gluon::lab
