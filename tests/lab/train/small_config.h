// A language model that trains in milliseconds.

#pragma once

#include <ostream>
#include <string>

#include "lab/train/experiment.h"
#include "lab/train/trainer.h"

namespace gluon::lab {

inline TrainConfig small_config(const std::string& preset = "unscion") {
  TrainConfig config;
  config.preset = preset;
  config.layers = 1;
  config.width = 32;
  config.heads = 2;
  config.seq = 32;
  config.batch = 4;
  config.steps = 3;
  return config;
}

inline Trainer make_trainer(const TrainConfig& config) {
  const Experiment experiment = make_experiment(config);
  return {config, experiment.model, experiment.dataset};
}

/// Runs to the end or to `stop`; shows the progress on `terminal` if there is one.
inline TrainSummary run(Trainer& trainer, RunDirectory directory, const std::atomic<bool>& stop = false,
                        std::streambuf* terminal = nullptr) {
  std::ostream out(terminal);
  Progress progress(out, terminal != nullptr);
  RunWriter writer(directory, progress, trainer.recorder(), trainer.steps_taken());
  return trainer.run(&writer, stop);
}

}  // namespace gluon::lab
