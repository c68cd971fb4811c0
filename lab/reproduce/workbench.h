// Workbench: where the paper's experiments are repeated.
//
//   OUT/data/           the prepared corpus (materials.h)
//   OUT/runs/NAME/      run directories without checkpoints; experiments share the runs they have in common
//   OUT/results.csv     how each run ended: name, steps, loss, val, accuracy, seconds
//   OUT/EXPERIMENT/     what came of it (study.h)
//
// The same command continues where it was stopped: runs in results.csv are not repeated, one that was interrupted goes
// on from its checkpoint. Several processes may work in one OUT, each on other experiments.

#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "gluon/fit/fit.h"
#include "lab/reproduce/materials.h"
#include "lab/sweep/sweep.h"
#include "lab/train/config.h"

namespace gluon::lab {

struct WorkbenchOptions {
  std::filesystem::path data;  // text/, gpt2/, cifar10/, paper-logs/
  std::filesystem::path out;
  bool small = false;  // models and runs for a laptop
  std::string device = "cpu";
};

struct RunResult {
  std::filesystem::path folder;
  double loss = 0;  // of the last step; NaN when the run diverged, as val
  double val = 0;
  std::optional<double> accuracy{};  // of image models
  double seconds = 0;
};

class Workbench {
 public:
  /// References must outlive it. Throws InputError when OUT/results.csv cannot be read.
  Workbench(WorkbenchOptions options, Progress& progress, Announce announce, const std::atomic<bool>& stop);

  bool small() const { return options_.small; }

  /// `small_one` with --small, else `full`.
  template <typename Value> Value pick(Value small_one, Value full) const { return small() ? small_one : full; }

  /// Where the texts of the language models are kept.
  std::filesystem::path prepared() const { return options_.out / "data"; }

  /// DATA/`name`. Throws MissingMaterial when there is nothing.
  std::filesystem::path material(const std::string& name) const { return lab::material(options_.data, name); }

  /// The paper's language model and its data, unscion's radii and momentum as in the paper, a constant schedule.
  TrainConfig language();

  /// The paper's CNN and CIFAR-10, unscion with the momentum of the authors' runs, a constant schedule. Throws
  /// MissingMaterial without the images.
  TrainConfig images() const;

  /// Trains the run called `name` to its end, unless it has ended. Throws Stopped, and InputError when `name` is a run
  /// with another config.
  RunResult train(const std::string& name, TrainConfig config);

  /// Trains a run called `name`-VALUE for each learning rate of AdamW, or radius of `key` for other presets.
  struct Trial {
    double value;
    RunResult result;
  };
  std::vector<Trial> try_values(const std::string& name, const TrainConfig& config, const std::string& key,
                                std::span<const double> values);

 private:
  struct Row {
    int64_t steps = 0;
    RunResult result;
  };

  std::map<std::string, Row> results() const;  // of OUT/results.csv, by the runs' names
  void add_result(const std::string& name, const Row& added) const;

  WorkbenchOptions options_;
  Progress& progress_;
  Announce announce_;
  const std::atomic<bool>& stop_;
  std::optional<Corpus> corpus_;  // of language()
};

/// The trial with the lowest validation loss. Throws InputError when all have diverged.
const Workbench::Trial& best_of(std::span<const Workbench::Trial> trials);

/// The fits of a run's samples.
TrajectoryFit fits_of(const RunResult& run, const FitOptions& options);

}  // namespace gluon::lab
