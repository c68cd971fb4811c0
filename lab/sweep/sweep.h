// Sweep: one run per cell of a grid of radii; the paper's heatmap. Its folder is a SweepFolder: the same command
// continues a sweep.

#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/sweep/sweep_folder.h"

namespace gluon::lab {

struct SweepAxis {
  std::string group;
  std::vector<double> radii;
};

/// "hidden=0.01,0.02,0.04". Throws InputError on anything else, and on a radius given twice.
SweepAxis parse_axis(const std::string& text);

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
