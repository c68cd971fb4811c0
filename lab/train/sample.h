// Text from a trained language model.

#pragma once

#include <cstdint>
#include <string>

#include "lab/train/config.h"

namespace gluon::lab {

struct SampleOptions {
  std::string prompt = "\n";
  int64_t count = 300;
  double temperature = 0.8;
  int64_t top_k = 0;
  uint64_t seed = 0;
};

struct Sampled {
  std::string text;
  std::string warning;  // of load_checkpoint()
};

/// What the model of the run in `config.out` writes after the prompt. Throws InputError when the run holds no
/// language model or no checkpoint, or an option is out of range.
Sampled sample_text(const TrainConfig& config, const SampleOptions& options);

}  // namespace gluon::lab
