// One training run from its config to its end, for what trains many: sweeps and the paper's experiments.
//
//   no run in config.out yet  -> it is started
//   a run that was stopped    -> it goes on from its last checkpoint

#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "lab/train/config.h"
#include "lab/train/run_writer.h"
#include "lab/train/trainer.h"

namespace gluon::lab {

/// Says one line to the user.
using Announce = std::function<void(const std::string&)>;

bool holds_run(const std::filesystem::path& folder);

/// Throws InputError when config.out holds a run with another config; `origin` begins the sentence.
void check_same_config(const TrainConfig& config, const std::string& origin);

/// Trains until the last step, or ends early after a step in which `stop` is true. A run that fails in its first step
/// leaves no folder behind, unless its gradients held NaN or Inf. Throws what Trainer throws.
TrainSummary train_whole(const TrainConfig& config, Progress& progress, const Announce& announce,
                         const std::atomic<bool>& stop);

}  // namespace gluon::lab
