#include "lab/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon::lab {
namespace {

// All combinations, the last axis fastest.
std::vector<std::vector<double>> grid(const std::vector<SweepAxis>& axes) {
  std::vector<std::vector<double>> cells{{}};
  for (const SweepAxis& axis : axes) {
    std::vector<std::vector<double>> longer;
    for (const auto& cell : cells) {
      for (const double radius : axis.radii) {
        longer.push_back(cell);
        longer.back().push_back(radius);
      }
    }
    cells = std::move(longer);
  }
  return cells;
}

std::vector<std::string> groups_of(const SweepOptions& options) {
  std::vector<std::string> groups;
  for (const SweepAxis& axis : options.axes) groups.push_back(axis.group);
  return groups;
}

}  // namespace

std::optional<std::size_t> best_cell(std::span<const SweepCell> cells) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (std::isfinite(cells[i].val) && (!best || cells[i].val < cells[*best].val)) best = i;
  }
  return best;
}

SweepAxis parse_axis(const std::string& text) {
  const auto equals = text.find('=');
  GLUON_CHECK(equals != std::string::npos && equals > 0 && !text.ends_with(','),
              "--radius: expected group=radius,radius,..., got '", text, "'");
  SweepAxis axis{text.substr(0, equals), {}};
  std::istringstream values(text.substr(equals + 1));
  for (std::string value; std::getline(values, value, ',');) {
    GLUON_CHECK(axis.radii.size() < kMostCells, "--radius ", axis.group, ": a sweep has at most ", kMostCells,
                " cells");
    const double radius = parse_number(value, "--radius " + axis.group);
    GLUON_CHECK(std::find(axis.radii.begin(), axis.radii.end(), radius) == axis.radii.end(), "--radius ", axis.group,
                ": ", value, " is given twice");
    axis.radii.push_back(radius);
  }
  GLUON_CHECK(!axis.radii.empty(), "--radius ", axis.group, ": expected at least one radius");
  return axis;
}

std::size_t count_cells(std::span<const SweepAxis> axes) {
  double cells = 1;  // the product may be beyond any integer
  for (const SweepAxis& axis : axes) cells *= static_cast<double>(axis.radii.size());
  GLUON_CHECK(cells <= static_cast<double>(kMostCells), "sweep: a grid has at most ", kMostCells,
              " cells, these radii give ", cells);
  return static_cast<std::size_t>(cells);
}

std::vector<SweepCell> run_sweep(const TrainConfig& config, const SweepOptions& options, Progress& progress,
                                 const Announce& announce, const std::atomic<bool>& stop) {
  GLUON_CHECK(!options.axes.empty(), "sweep: expected --radius group=radius,radius,...");
  (void)count_cells(options.axes);
  SweepFolder folder("sweep", options.out, groups_of(options));
  std::vector<PlannedCell> cells;  // all are checked before the first run
  for (const auto& radii : grid(options.axes)) cells.push_back(folder.plan(config, radii));
  std::vector<SweepCell> done;
  for (std::size_t i = 0; i < cells.size() && !stop; ++i) {
    const auto result = folder.run(cells[i], join("[", i + 1, "/", cells.size(), "]"), progress, announce, stop);
    if (!result) break;
    done.push_back(*result);
  }
  return done;
}

std::string sweep_table(const SweepOptions& options, const std::vector<SweepCell>& cells) {
  const auto lowest = best_cell(cells);
  const SweepCell* best = lowest ? &cells[*lowest] : nullptr;
  const auto value_text = [&](const SweepCell* cell) {
    if (cell == nullptr) return std::string("-");
    std::ostringstream text;
    text << std::fixed << std::setprecision(4) << cell->val << (cell == best ? "*" : " ");
    return text.str();
  };
  const auto find = [&](const std::vector<double>& radii) {
    const auto found =
        std::find_if(cells.begin(), cells.end(), [&](const SweepCell& cell) { return cell.radii == radii; });
    return found == cells.end() ? nullptr : &*found;
  };
  // The last axis goes across; a single axis goes down, as its row would be too long.
  const bool flat = options.axes.size() == 1;
  const std::vector<SweepAxis> down(options.axes.begin(), options.axes.end() - (flat ? 0 : 1));
  const std::vector<double> across = flat ? std::vector<double>{} : options.axes.back().radii;
  std::ostringstream out;
  for (const SweepAxis& axis : down) out << std::setw(12) << axis.group;
  out << (flat ? "" : "  | " + options.axes.back().group);
  for (const double radius : across) out << std::setw(11) << number_text(radius);
  out << (flat ? "        val" : "") << '\n';
  for (std::vector<double>& row : grid(down)) {
    for (const double radius : row) out << std::setw(12) << number_text(radius);
    out << (flat ? "" : "  | " + std::string(options.axes.back().group.size(), ' '));
    if (flat) out << std::setw(11) << value_text(find(row));
    for (const double radius : across) {
      std::vector<double> cell = row;
      cell.push_back(radius);
      out << std::setw(11) << value_text(find(cell));
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace gluon::lab
