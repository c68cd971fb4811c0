// Text from a trained language model.

#pragma once

#include <cstdint>
#include <string>

#include "lab/data/dataset.h"
#include "lab/train/config.h"
#include "lab/train/experiment.h"

namespace gluon::lab {

struct SampleOptions {
  std::string prompt = "\n";
  int64_t count = 300;
  double temperature = 0.8;
  int64_t top_k = 0;
  uint64_t seed = 0;
};

/// Throws InputError when `config` is no language model, or trains on token shards without --vocab, whose tokens are no
/// text. `dataset` is that of the config.
void check_writes_text(const TrainConfig& config, const Dataset& dataset);

/// What the experiment's model, as it is in memory, writes after the prompt. Throws InputError when it is no language
/// model, its tokens are no text (check_writes_text()) or an option is out of range.
std::string sample_text(const TrainConfig& config, const Experiment& experiment, const SampleOptions& options);

struct RunSample {
  std::string text;
  std::string warning;  // of load_checkpoint()
};

/// The same with the last checkpoint of the run in `config.out`. Throws InputError also when there is none.
RunSample sample_run(const TrainConfig& config, const SampleOptions& options);

}  // namespace gluon::lab
