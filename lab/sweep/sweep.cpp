#include "lab/sweep/sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "lab/train/effect.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

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

constexpr std::array<std::string_view, 3> kResults = {"val", "loss", "seconds"};

std::vector<std::string> groups_of(const SweepOptions& options) {
  std::vector<std::string> groups;
  for (const SweepAxis& axis : options.axes) groups.push_back(axis.group);
  return groups;
}

// The rows of an earlier sweep over the same groups.
std::vector<SweepCell> earlier_cells(const SweepOptions& options) {
  const fs::path path = options.out / "sweep.csv";
  if (!fs::exists(path)) return {};
  SweepTable earlier = read_sweep_csv(path);
  GLUON_CHECK(earlier.groups == groups_of(options), "sweep: ", path.string(), " is of a sweep over ",
              csv_row(earlier.groups), ", this one is over ", csv_row(groups_of(options)), "; choose another --out");
  return std::move(earlier.cells);
}

void write_csv(const SweepOptions& options, std::vector<SweepCell> cells) {
  for (const SweepCell& old : earlier_cells(options)) {
    const auto same = [&](const SweepCell& cell) { return cell.radii == old.radii; };
    if (std::none_of(cells.begin(), cells.end(), same)) cells.push_back(old);
  }
  std::vector<std::string> header = groups_of(options);
  header.insert(header.end(), kResults.begin(), kResults.end());
  std::string text = csv_row(header) + "\n";
  for (const SweepCell& cell : cells) {
    std::vector<std::string> row;
    for (const double radius : cell.radii) row.push_back(number_text(radius));
    for (const double result : {cell.val, cell.loss, cell.seconds}) row.push_back(number_text(result));
    text += csv_row(row) + "\n";
  }
  write_text_atomically(options.out / "sweep.csv", text);
}

constexpr const char* kDiverged = "diverged";  // a file in the cell's folder

// The result of a run that has ended already, or diverged; nothing when it has not.
std::optional<SweepCell> finished_cell(const TrainConfig& config, const std::vector<double>& radii) {
  const RunDirectory directory = RunDirectory::open(config.out);
  const std::vector<LogRow> rows = directory.log();
  const LogRow last = rows.empty() ? LogRow{.loss = std::nan("")} : rows.back();
  if (fs::exists(directory.path() / kDiverged)) return SweepCell{radii, std::nan(""), last.loss, last.seconds};
  if (last.step < config.steps || !last.val) return std::nullopt;
  return SweepCell{radii, *last.val, last.loss, last.seconds};
}

// Starts or continues the run in config.out; nothing when it was stopped.
std::optional<SweepCell> train_cell(const TrainConfig& config, const std::vector<double>& radii, Progress& progress,
                                    const Announce& announce, const std::atomic<bool>& stop) {
  try {
    const TrainSummary summary = train_whole(config, progress, announce, stop);
    if (summary.interrupted) return std::nullopt;
    return SweepCell{radii, summary.val, summary.loss, summary.seconds};
  } catch (const NonFiniteGradient& error) {
    write_text_atomically(fs::path(config.out) / kDiverged, join(error.what(), "\n"));
    return finished_cell(config, radii);
  }
}

// The config of a cell, checked before the first run.
struct PlannedCell {
  std::vector<double> radii;
  TrainConfig config;
  std::string refusal;  // why it cannot be trained; empty: it can
};

std::vector<PlannedCell> plan(const TrainConfig& config, const SweepOptions& options) {
  const std::vector<std::string> groups = groups_of(options);
  std::vector<PlannedCell> cells;
  for (const auto& radii : grid(options.axes)) {
    PlannedCell cell{radii, config, {}};
    cell.config.radius = cell_name(groups, radii);
    cell.config.out = (options.out / cell.config.radius).string();
    try {
      cell.config.validate();
    } catch (const RadiusOutOfRange& error) {
      cell.refusal = error.what();
    }
    check_effect(cell.config);
    if (holds_run(cell.config.out)) check_same_config(cell.config, "sweep");
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

SweepTable read_sweep_csv(const std::filesystem::path& path) {
  CsvReader csv("sweep", path);
  SweepTable table{csv.columns(), {}};
  const auto groups = static_cast<std::ptrdiff_t>(table.groups.size()) - std::ssize(kResults);
  GLUON_CHECK(groups > 0 && std::equal(kResults.begin(), kResults.end(), table.groups.begin() + groups),
              "sweep: ", path.string(), " is not a sweep: expected the columns GROUP,...,val,loss,seconds, got '",
              csv_row(table.groups), "'");
  table.groups.resize(static_cast<std::size_t>(groups));
  while (csv.next()) {
    SweepCell cell;
    std::size_t at = 0;
    while (at < table.groups.size()) cell.radii.push_back(csv.number(at++));
    for (double* result : {&cell.val, &cell.loss, &cell.seconds}) *result = csv.number(at++);
    table.cells.push_back(std::move(cell));
  }
  GLUON_CHECK(!table.cells.empty(), "sweep: ", path.string(), " has no finished cell yet");
  return table;
}

std::string cell_name(std::span<const std::string> groups, std::span<const double> radii) {
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += join(i == 0 ? "" : ",", groups[i], "=", number_text(radii[i]));
  }
  return text;
}

std::string cell_failure(const fs::path& folder) {
  if (fs::symlink_status(folder / kDiverged).type() != fs::file_type::regular) return {};
  const std::string text = read_text(folder / kDiverged, "sweep");
  return text.substr(0, text.find('\n'));
}

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
    const double radius = parse_number(value, "--radius " + axis.group);
    GLUON_CHECK(std::find(axis.radii.begin(), axis.radii.end(), radius) == axis.radii.end(), "--radius ", axis.group,
                ": ", value, " is given twice");
    axis.radii.push_back(radius);
  }
  GLUON_CHECK(!axis.radii.empty(), "--radius ", axis.group, ": expected at least one radius");
  return axis;
}

std::vector<SweepCell> run_sweep(const TrainConfig& config, const SweepOptions& options, Progress& progress,
                                 const Announce& announce, const std::atomic<bool>& stop) {
  GLUON_CHECK(!options.axes.empty(), "sweep: expected --radius group=radius,radius,...");
  const std::vector<PlannedCell> cells = plan(config, options);
  (void)earlier_cells(options);
  std::vector<SweepCell> done;
  for (std::size_t i = 0; i < cells.size() && !stop; ++i) {
    const auto& [radii, cell, refusal] = cells[i];
    const std::string label = join("[", i + 1, "/", cells.size(), "] ", cell.radius);
    std::optional<SweepCell> result;
    if (!refusal.empty()) {
      announce(join(label, "  is left out: ", refusal));
      result = SweepCell{radii, std::nan(""), std::nan(""), 0};
      fs::create_directories(cell.out);
      write_text_atomically(fs::path(cell.out) / kDiverged, refusal + "\n");
    } else {
      if (holds_run(cell.out)) result = finished_cell(cell, radii);
      announce(join(label, result ? "  is already finished" : ""));
      if (!result) result = train_cell(cell, radii, progress, announce, stop);
    }
    if (!result) break;
    done.push_back(*result);
    write_csv(options, done);
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
