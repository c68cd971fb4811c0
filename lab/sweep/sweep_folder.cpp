#include "lab/sweep/sweep_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "lab/sweep/folder_lock.h"
#include "lab/train/effect.h"
#include "lab/train/run_status.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kResults = {"val", "loss", "seconds"};
constexpr const char* kDiverged = "diverged";  // a file in the cell's folder

// Whether the run with these rows took all its steps and saved the last: a full disk may take the row and not the
// checkpoint. The checkpoints of a finished run may have been removed; a run without a status needs them.
bool has_ended(const TrainConfig& config, const RunDirectory& directory, const std::vector<LogRow>& rows) {
  if (rows.empty() || rows.back().step < config.steps || !rows.back().val) return false;
  std::string damage;
  const bool finished =
      read_run_status(directory.path(), rows, config.steps, damage).state == RunState::kFinished;  // or its log says so
  const bool told = fs::exists(directory.path() / "status.json") && damage.empty();
  return finished && (told || has_checkpoint(directory.checkpoints()));
}

// The result of a run that has ended already, or diverged; nothing when it has not.
std::optional<SweepCell> finished_cell(const TrainConfig& config, const std::vector<double>& radii) {
  const RunDirectory directory = RunDirectory::open(config.out);
  const std::vector<LogRow> rows = directory.log();
  const LogRow last = rows.empty() ? LogRow{.loss = std::nan("")} : rows.back();
  if (fs::exists(directory.path() / kDiverged)) return SweepCell{radii, std::nan(""), last.loss, last.seconds};
  if (!has_ended(config, directory, rows)) return std::nullopt;
  return SweepCell{radii, *last.val, last.loss, last.seconds};
}

// Starts or continues the run in config.out; nothing when it was stopped.
std::optional<SweepCell> train_cell(const TrainConfig& config, const std::vector<double>& radii, Progress& progress,
                                    const Announce& announce, const std::atomic<bool>& stop) {
  try {
    const TrainSummary summary = train_whole(config, progress, announce, stop);
    if (summary.interrupted) return std::nullopt;
    // One that was killed after its last step takes no more, and has no loss of its own.
    const std::vector<LogRow> rows = RunDirectory::open(config.out).log();
    return SweepCell{radii, summary.val, rows.empty() ? summary.loss : rows.back().loss, summary.seconds};
  } catch (const NonFiniteGradient& error) {
    write_text_atomically(fs::path(config.out) / kDiverged, join(error.what(), "\n"));
    return finished_cell(config, radii);
  }
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

SweepFolder::SweepFolder(std::string origin, fs::path path, std::vector<std::string> groups)
    : origin_(std::move(origin)), path_(std::move(path)), groups_(std::move(groups)) {
  GLUON_CHECK(!holds_run(path_), origin_, ": ", path_.string(), " holds a run; choose another --out");
  (void)earlier_cells();
}

// The rows of an earlier sweep over the same groups.
std::vector<SweepCell> SweepFolder::earlier_cells() const {
  const fs::path path = path_ / "sweep.csv";
  if (!fs::exists(path)) return {};
  SweepTable earlier = read_sweep_csv(path);
  GLUON_CHECK(earlier.groups == groups_, origin_, ": ", path.string(), " is of a sweep over ", csv_row(earlier.groups),
              ", this one is over ", csv_row(groups_), "; choose another --out");
  return std::move(earlier.cells);
}

// The cells of a table differ in their radii alone.
void SweepFolder::check_same_sweep(TrainConfig config) const {
  for (const SweepCell& cell : earlier_cells()) {
    config.radius = cell_name(groups_, cell.radii);
    config.out = (path_ / config.radius).string();
    if (holds_run(config.out)) return check_same_config(config, origin_);
  }
}

void SweepFolder::write_csv() const {
  const FolderLock lock(path_);
  std::vector<SweepCell> cells = done_;
  for (const SweepCell& old : earlier_cells()) {
    const auto same = [&](const SweepCell& cell) { return cell.radii == old.radii; };
    if (std::none_of(cells.begin(), cells.end(), same)) cells.push_back(old);
  }
  std::vector<std::string> header = groups_;
  header.insert(header.end(), kResults.begin(), kResults.end());
  std::string text = csv_row(header) + "\n";
  for (const SweepCell& cell : cells) {
    std::vector<std::string> row;
    for (const double radius : cell.radii) row.push_back(number_text(radius));
    for (const double result : {cell.val, cell.loss, cell.seconds}) row.push_back(number_text(result));
    text += csv_row(row) + "\n";
  }
  write_text_atomically(path_ / "sweep.csv", text);
}

PlannedCell SweepFolder::plan(const TrainConfig& config, const std::vector<double>& radii) const {
  GLUON_CHECK(config.on_nan != "rollback", origin_,
              ": --on-nan rollback would train a cell with other radii than its own; allowed are error and skip");
  PlannedCell cell{radii, config, {}};
  cell.config.radius = cell_name(groups_, radii);
  cell.config.out = (path_ / cell.config.radius).string();
  try {
    cell.config.validate();
  } catch (const RadiusOutOfRange& error) {
    cell.refusal = error.what();
  }
  check_effect(cell.config);
  if (holds_run(cell.config.out)) check_same_config(cell.config, origin_);
  check_same_sweep(config);
  return cell;
}

std::optional<SweepCell> SweepFolder::run(const PlannedCell& cell, const std::string& label, Progress& progress,
                                          const Announce& announce, const std::atomic<bool>& stop) {
  const std::string line = join(label, " ", cell.config.radius);
  std::optional<SweepCell> result;
  if (!cell.refusal.empty()) {
    announce(join(line, "  is left out: ", cell.refusal));
    result = SweepCell{cell.radii, std::nan(""), std::nan(""), 0};
    fs::create_directories(cell.config.out);
    write_text_atomically(fs::path(cell.config.out) / kDiverged, cell.refusal + "\n");
  } else {
    if (holds_run(cell.config.out)) result = finished_cell(cell.config, cell.radii);
    announce(join(line, result ? "  is already finished" : ""));
    if (!result) result = train_cell(cell.config, cell.radii, progress, announce, stop);
  }
  if (!result) return std::nullopt;
  done_.push_back(*result);
  write_csv();
  return result;
}

}  // namespace gluon::lab
