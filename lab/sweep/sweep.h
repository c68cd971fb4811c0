// Sweep: one run per cell of a grid of radii; the paper's heatmap.
//
//   OUT/hidden=0.01,embedding=0.5/     one run directory per cell
//   OUT/sweep.csv                      the results (SweepTable)
//
// The same command continues a sweep: finished cells are skipped, an interrupted one resumes. A cell whose gradients
// become NaN or Inf, or whose radii are beyond float32, is recorded with val = nan; the file "diverged" in its folder
// says why.

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

struct SweepAxis {
  std::string group;
  std::vector<double> radii;
};

/// "hidden=0.01,0.02,0.04". Throws InputError on anything else, and on a radius given twice.
SweepAxis parse_axis(const std::string& text);

struct SweepCell {
  std::vector<double> radii;  // one per axis
  double val = 0;             // validation loss at the end; NaN when the run diverged
  double loss = 0;            // of the last step
  double seconds = 0;
};

/// sweep.csv: a column per group of layers, then val, loss and seconds; a row per finished cell.
struct SweepTable {
  std::vector<std::string> groups;  // one per axis
  std::vector<SweepCell> cells;
};

/// Throws InputError on a file that is not a sweep or has no row.
SweepTable read_sweep_csv(const std::filesystem::path& path);

/// The folder of a cell in that of its sweep, which is also its --radius: "hidden=0.01,embedding=0.5".
std::string cell_name(std::span<const std::string> groups, std::span<const double> radii);

/// Why the run in `folder`, a cell's, has no validation loss; empty when it does not say.
std::string cell_failure(const std::filesystem::path& folder);

/// The cell with the lowest validation loss; nothing when all have diverged.
std::optional<std::size_t> best_cell(std::span<const SweepCell> cells);

struct SweepOptions {
  std::vector<SweepAxis> axes;
  std::filesystem::path out;
};

/// Runs the unfinished cells in order and writes sweep.csv after each. Returns the finished cells, which are not all
/// when `stop` turned true. Throws InputError when a cell's folder holds a run with another config, sweep.csv is
/// of other groups, and where a training run would.
std::vector<SweepCell> run_sweep(const TrainConfig& config, const SweepOptions& options, Progress& progress,
                                 const Announce& announce, const std::atomic<bool>& stop);

/// A table of validation losses, the best one marked; with several axes the last one goes across.
std::string sweep_table(const SweepOptions& options, const std::vector<SweepCell>& cells);

}  // namespace gluon::lab
