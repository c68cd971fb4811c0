// Cost of recording smoothness: windows of training steps with and without a recorder, in turns.

#pragma once

#include <cstdint>

#include "lab/train/config.h"

namespace gluon::benchmarks {

struct SmoothnessResult {
  double plain_milliseconds = 0;  // medians of a window of `every` steps, in which one sample falls
  double recorded_milliseconds = 0;
  double overhead = 0;       // recorded / plain - 1
  int64_t bytes_during = 0;  // of copies, while a sampled pair is open
  int64_t bytes_after = 0;   // between pairs
  int threads = 1;
};

/// Times `windows` windows of `config.smoothness_every` steps per side. Throws InputError as a training run does.
SmoothnessResult run_smoothness(const lab::TrainConfig& config, int64_t windows);

}  // namespace gluon::benchmarks
