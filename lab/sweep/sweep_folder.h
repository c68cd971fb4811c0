// SweepFolder: runs that differ in their radii, side by side in one folder; grids (sweep.h) and probes (probe.h) fill it.
//
//   OUT/hidden=0.01,embedding=0.5/     one run directory per cell
//   OUT/sweep.csv                      the results (SweepTable)
//
// A finished cell is read, not trained again; an interrupted one, or one whose last checkpoint failed, resumes. Several
// processes may fill one folder with other cells each. A cell whose gradients become NaN or Inf, or whose radii are
// beyond float32, is recorded with val = nan; the file "diverged" in its folder says why.

#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/train/config.h"
#include "lab/train/whole_run.h"

namespace gluon::lab {

struct SweepCell {
  std::vector<double> radii;  // one per group
  double val = 0;             // validation loss at the end; NaN when the run diverged
  double loss = 0;            // of the last step
  double seconds = 0;
};

/// sweep.csv: a column per group of layers, then val, loss and seconds; a row per finished cell.
struct SweepTable {
  std::vector<std::string> groups;
  std::vector<SweepCell> cells;
};

/// Throws InputError on a file that is not a sweep or has no row.
SweepTable read_sweep_csv(const std::filesystem::path& path);

/// The folder of a cell in that of its sweep, which is also its --radius: "hidden=0.01,embedding=0.5".
std::string cell_name(std::span<const std::string> groups, std::span<const double> radii);

/// Why the run in `folder`, a cell's, has no validation loss; empty when it does not say.
std::string cell_failure(const std::filesystem::path& folder);

/// A cell before its run.
struct PlannedCell {
  std::vector<double> radii;
  TrainConfig config;
  std::string refusal;  // why it cannot be trained; empty: it can
};

class SweepFolder {
 public:
  /// `origin` begins the errors. Throws InputError when the folder holds a run, or a sweep.csv of other groups.
  SweepFolder(std::string origin, std::filesystem::path path, std::vector<std::string> groups);

  /// `config` with these radii, in the folder of its cell. Throws InputError when that, or another cell, holds a run with
  /// another config, on --on-nan rollback, and where a training run would; radii beyond float32 are a refusal instead.
  PlannedCell plan(const TrainConfig& config, const std::vector<double>& radii) const;

  /// Trains, resumes or reads the cell after announcing `label` and its radii, and writes sweep.csv: cells in the order in
  /// which this object ran them, then earlier ones. Nothing when `stop` turned true before its end.
  std::optional<SweepCell> run(const PlannedCell& cell, const std::string& label, Progress& progress,
                               const Announce& announce, const std::atomic<bool>& stop);

 private:
  std::vector<SweepCell> earlier_cells() const;
  void check_same_sweep(TrainConfig config) const;
  void write_csv() const;

  std::string origin_;
  std::filesystem::path path_;
  std::vector<std::string> groups_;
  std::vector<SweepCell> done_;
};

}  // namespace gluon::lab
