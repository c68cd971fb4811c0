#include <algorithm>
#include <cmath>
#include <set>

#include "gluon/core/check.h"
#include "lab/report/report_data.h"
#include "lab/report/thin.h"

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
  } else if (cell.failed.empty()) {
    cell.failed = "its validation loss is not finite";
  }
  return cell;
}

}  // namespace

ReportSweep read_sweep(const fs::path& path) {
  const fs::path folder = fs::is_directory(path) ? path : fs::absolute(path).parent_path();
  ReportSweep sweep{{}, read_sweep_csv(folder == path ? path / "sweep.csv" : path), {}};
  for (const SweepCell& cell : sweep.table.cells) {
    const std::string name = cell_name(sweep.table.groups, cell.radii);
    const bool inside = name.find('/') == std::string::npos;  // a group may be called "../.." in a stranger's file
    sweep.cells.push_back(read_cell(inside ? folder / name : fs::path(), std::isfinite(cell.val)));
  }
  return sweep;
}

}  // namespace gluon::lab
