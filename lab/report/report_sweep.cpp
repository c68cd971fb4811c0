#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "lab/report/report_data.h"
#include "lab/report/thin.h"
#include "lab/train/radius_flag.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// A sweep may have hundreds of cells, whose charts are small.
constexpr std::size_t kLossRows = 300, kEvaluatedRows = 100;

// The rows that the curves of the loss and of the validation loss need.
std::vector<LogRow> thin_rows(const std::vector<LogRow>& rows) {
  std::vector<double> loss, val;
  std::vector<std::size_t> evaluated;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    loss.push_back(rows[i].loss);
    if (!rows[i].val) continue;
    evaluated.push_back(i);
    val.push_back(*rows[i].val);
  }
  std::set<std::size_t> kept;
  for (const std::size_t i : thin(loss, kLossRows)) kept.insert(i);
  for (const std::size_t i : thin(val, kEvaluatedRows)) kept.insert(evaluated[i]);
  std::vector<LogRow> thinned;
  for (const std::size_t i : kept) thinned.push_back(rows[i]);
  return thinned;
}

ReportCell read_cell(const fs::path& folder, bool has_loss) {
  ReportCell cell;
  if (!folder.empty() && fs::exists(folder / "config.toml")) {
    try {
      const std::string refusal = refusal_of(folder);
      GLUON_CHECK(refusal.empty(), folder.string(), " ", refusal);
      cell.run = read_run_files(folder);
      cell.run->name = folder.filename().string();
      cell.run->log = thin_rows(cell.run->log);
    } catch (const InputError& error) {
      cell.failed = join("its run cannot be read: ", error.what());
    }
  }
  if (has_loss) {
    cell.failed.clear();
  } else if (const std::string reason = folder.empty() ? "" : cell_failure(folder); !reason.empty()) {
    cell.failed = reason;
  } else if (cell.run && !cell.run->status.error.empty()) {
    cell.failed = cell.run->status.error;
  } else if (cell.failed.empty()) {
    cell.failed = "its validation loss is not finite";
  }
  return cell;
}

// The radii that the folder of a cell is named after; nothing for another folder.
std::optional<std::vector<double>> radii_of(const std::string& folder, std::span<const std::string> groups) {
  try {
    std::vector<double> radii;
    for (const RadiusEntry& entry : radius_entries(folder)) radii.push_back(parse_number(entry.value, "sweep"));
    if (radii.size() == groups.size() && cell_name(groups, radii) == folder) return radii;
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

// Cells that have begun but have no row in sweep.csv yet.
void add_unfinished(const fs::path& folder, ReportSweep& sweep) {
  std::set<std::vector<double>> finished;
  for (const SweepCell& cell : sweep.table.cells) finished.insert(cell.radii);
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const auto radii = radii_of(entry->path().filename().string(), sweep.table.groups);
    if (!radii || finished.contains(*radii) || entry->is_symlink()) continue;
    ReportCell cell = read_cell(entry->path(), true);
    if (!cell.run) continue;
    const std::string status = status_text(cell.run->status);
    cell.failed = "not finished" + (status.empty() ? "" : ": " + status);
    sweep.table.cells.push_back({*radii, std::nan(""), std::nan(""), 0});
    sweep.cells.push_back(std::move(cell));
  }
}

}  // namespace

ReportSweep read_sweep(const ReportSource& source) {
  const bool named = fs::is_directory(source.path);
  const fs::path folder = named ? source.path : fs::absolute(source.path).parent_path();
  ReportSweep sweep{source.name, read_sweep_csv(named ? folder / "sweep.csv" : source.path), {}};
  for (const SweepCell& cell : sweep.table.cells) {
    const std::string name = cell_name(sweep.table.groups, cell.radii);
    // In a stranger's file a group may be called "../..".
    const bool inside = name.find('/') == std::string::npos && !fs::is_symlink(folder / name);
    sweep.cells.push_back(read_cell(inside ? folder / name : fs::path(), std::isfinite(cell.val)));
  }
  add_unfinished(folder, sweep);
  return sweep;
}

}  // namespace gluon::lab
