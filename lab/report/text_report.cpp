#include "lab/report/text_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>

#include "gluon/core/printable.h"

namespace gluon::lab {
namespace {

constexpr std::size_t kSparkWidth = 24;
constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// Mean of the finite values in each of `count` equal parts; NaN where there are none.
std::vector<double> part_means(std::span<const double> values, std::size_t count) {
  std::vector<double> means;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    int finite = 0;
    for (std::size_t k = i * values.size() / count; k < (i + 1) * values.size() / count; ++k) {
      if (!std::isfinite(values[k])) continue;
      sum += values[k];
      ++finite;
    }
    means.push_back(finite > 0 ? sum / finite : std::nan(""));
  }
  return means;
}

std::string number(double value, int digits = 4) { return std::isfinite(value) ? rounded(value, digits) : "-"; }

void print_losses(std::ostream& out, const std::string& what, const std::vector<double>& values) {
  if (values.empty()) return;
  const double least = *std::min_element(values.begin(), values.end(),
                                         [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); });
  out << "  " << std::left << std::setw(18) << what << sparkline(values, 2 * kSparkWidth) << "  first "
      << number(values.front()) << ", last " << number(values.back()) << ", least " << number(least) << '\n';
}

void print_log(std::ostream& out, const ReportRun& run) {
  if (run.log.empty()) return;
  std::vector<double> loss, val;
  for (const LogRow& row : run.log) {
    if (std::isfinite(row.loss)) loss.push_back(row.loss);
    if (row.val) val.push_back(*row.val);
  }
  const LogRow& last = run.log.back();
  out << "  steps " << last.step;
  if (last.tokens > 0) out << ", tokens " << last.tokens;
  out << ", seconds " << number(last.seconds) << '\n';
  print_losses(out, "training loss", loss);
  print_losses(out, "validation loss", val);
}

void print_layers(std::ostream& out, const ReportRun& run) {
  if (run.layers.empty()) return;
  std::size_t name = 5;
  for (const ReportLayer& layer : run.layers) name = std::max(name, printable(layer.name).size());
  const auto wide = static_cast<int>(name) + 2;
  out << "\n  Lhat ~ L0 + L1 |g|*, estimator " << estimator_name(run.estimator) << "\n  " << std::left
      << std::setw(wide) << "layer" << std::right << std::setw(11) << "L0" << std::setw(11) << "L1" << std::setw(14)
      << "relative MSE" << std::setw(9) << "above"
      << "  Lhat over the run\n";
  for (const ReportLayer& layer : run.layers) {
    std::vector<double> smoothness;
    for (const Sample& sample : layer.samples) smoothness.push_back(sample.smoothness);
    out << "  " << std::left << std::setw(wide) << printable(layer.name) << std::right;
    if (layer.fit) {
      out << std::setw(11) << number(layer.fit->l0) << std::setw(11) << number(layer.fit->l1) << std::setw(14)
          << number(layer.fit->mse_rel, 3) << std::setw(7) << std::lround(100 * layer.fit->violations) << " %"
          << "  " << sparkline(smoothness, kSparkWidth) << (layer.fit->doubt.empty() ? "" : "  doubtful: ")
          << layer.fit->doubt << '\n';
    } else {
      out << "  not fitted: " << layer.unfitted << '\n';
    }
  }
}

void print_radii(std::ostream& out, const ReportRun& run) {
  if (run.radii.empty()) return;
  out << "\n  " << std::left << std::setw(12) << "group" << std::right << std::setw(8) << "layers" << std::setw(12)
      << "predicted" << std::setw(12) << "used" << std::setw(12) << "ratio" << '\n';
  for (const GroupRadius& radius : run.radii) {
    out << "  " << std::left << std::setw(12) << (radius.group.empty() ? "(all)" : printable(radius.group))
        << std::right << std::setw(8) << radius.layers << std::setw(12) << number(radius.predicted) << std::setw(12)
        << number(radius.used) << std::setw(12) << number(radius.predicted / radius.used)
        << (radius.doubt.empty() ? "" : "  doubtful: ") << printable(radius.doubt) << '\n';
  }
}

void print_sweep(std::ostream& out, const ReportSweep& sweep) {
  out << printable(sweep.name) << "  (sweep, best first)\n  ";
  for (const std::string& group : sweep.table.groups) out << std::left << std::setw(14) << printable(group);
  out << "validation loss\n";
  const std::vector<SweepCell>& cells = sweep.table.cells;
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) { return std::isfinite(cells[i].val) ? cells[i].val : HUGE_VAL; };
  std::ranges::stable_sort(order, {}, rank);
  for (const std::size_t i : order) {
    out << "  ";
    for (const double radius : cells[i].radii) out << std::left << std::setw(14) << number(radius);
    const std::string failed = i < sweep.cells.size() ? sweep.cells[i].failed : "";
    if (std::isfinite(cells[i].val)) {
      out << number(cells[i].val, 6) << (best_cell(cells) == i ? "  best\n" : "\n");
    } else {
      out << "-  " << (failed.empty() ? "diverged" : printable(failed)) << '\n';
    }
  }
}

}  // namespace

std::string sparkline(std::span<const double> values, std::size_t width) {
  const std::vector<double> means = part_means(values, std::min(width, values.size()));
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  for (const double mean : means) {
    if (std::isnan(mean)) continue;
    least = std::min(least, mean);
    greatest = std::max(greatest, mean);
  }
  std::string line;
  for (const double mean : means) {
    if (std::isnan(mean)) {
      line += ' ';
      continue;
    }
    const double height = greatest > least ? (mean - least) / (greatest - least) : 0;
    line += kBars[static_cast<std::size_t>(std::lround(height * (kBars.size() - 1)))];
  }
  return line;
}

std::string text_report(const ReportData& data) {
  std::ostringstream out;
  bool first = true;
  for (const ReportRun& run : data.runs) {
    out << (first ? "" : "\n") << printable(run.name) << '\n';
    first = false;
    if (const std::string status = status_text(run.status); !status.empty()) out << "  " << printable(status) << '\n';
    print_log(out, run);
    print_layers(out, run);
    print_radii(out, run);
    for (const std::string& note : run.notes) out << "  note: " << printable(note) << '\n';
  }
  for (const ReportSweep& sweep : data.sweeps) {
    out << (first ? "" : "\n");
    first = false;
    print_sweep(out, sweep);
  }
  return out.str();
}

}  // namespace gluon::lab
