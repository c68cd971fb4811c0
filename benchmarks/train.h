// Benchmark of whole training steps: time of each stage, tokens per second, peak memory.

#pragma once

#include <cstdint>

#include "lab/train/config.h"
#include "lab/train/trainer.h"

namespace gluon::benchmarks {

struct TrainResult {
  double tokens_per_second = 0;
  lab::StepTiming step;  // medians, seconds
  double peak_megabytes = 0;
  int64_t gpu_peak_bytes = 0;  // of tensors; 0 on the CPU
  int threads = 0;
};

/// Three warm-up steps (on a GPU the third one captures the graph), then medians over `repeats` steps of `config`.
/// Throws InputError as gluon train does.
TrainResult run_train(const lab::TrainConfig& config, int64_t repeats);

}  // namespace gluon::benchmarks
