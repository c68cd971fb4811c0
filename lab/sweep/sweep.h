// Sweep: one run per cell of a grid of radii; the paper's heatmap. Its folder is a SweepFolder: the same command
// continues a sweep.

#pragma once

#include <atomic>
#include <cstddef>
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

inline constexpr std::size_t kMostCells = 10'000;  // planned in seconds; each is a folder

/// "hidden=0.01,0.02,0.04". Throws InputError on anything else, on a radius given twice and on more than kMostCells.
SweepAxis parse_axis(const std::string& text);

/// The cells of a grid. Throws InputError when they are more than kMostCells.
std::size_t count_cells(std::span<const SweepAxis> axes);

/// The cell with the lowest validation loss; nothing when all have diverged.
std::optional<std::size_t> best_cell(std::span<const SweepCell> cells);

struct SweepOptions {
  std::vector<SweepAxis> axes;
  std::filesystem::path out;
};

/// Runs the unfinished cells in order and writes sweep.csv after each. Returns the finished cells, which are not all
/// when `stop` turned true. Throws InputError when the grid is too large, its folder holds a run, a cell's
/// folder holds one with another config, sweep.csv is of other groups, and where a training run would.
std::vector<SweepCell> run_sweep(const TrainConfig& config, const SweepOptions& options, Progress& progress,
                                 const Announce& announce, const std::atomic<bool>& stop);

/// A table of validation losses, the best one marked; with several axes the last one goes across.
std::string sweep_table(const SweepOptions& options, const std::vector<SweepCell>& cells);

}  // namespace gluon::lab
