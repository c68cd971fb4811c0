#include "benchmarks/smoothness.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"
#include "lab/train/experiment.h"
#include "lab/train/trainer.h"

namespace gluon::benchmarks {
namespace {

lab::Trainer make_trainer(const lab::TrainConfig& config) {
  const lab::Experiment experiment = lab::make_experiment(config);
  return {config, experiment.model, experiment.dataset};
}

// Milliseconds of `steps` steps.
double window(lab::Trainer& trainer, int64_t steps, int64_t& most_bytes) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) {
    trainer.step();
    if (trainer.recorder() != nullptr) most_bytes = std::max(most_bytes, trainer.recorder()->bytes_held());
  }
  return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

SmoothnessResult run_smoothness(const lab::TrainConfig& config, int64_t windows) {
  GLUON_CHECK(windows >= 1, "bench smoothness: windows must be >= 1, got ", windows);
  GLUON_CHECK(config.smoothness_every >= 2, "bench smoothness: --smoothness-every must be >= 2, got ",
              config.smoothness_every);
  lab::TrainConfig without = config;
  without.smoothness_every = 0;
  lab::Trainer plain = make_trainer(without);
  lab::Trainer recorded = make_trainer(config);
  SmoothnessResult result;
  std::vector<double> plain_times;
  std::vector<double> recorded_times;
  int64_t ignored = 0;
  for (int64_t i = 0; i < windows; ++i) {
    plain_times.push_back(window(plain, config.smoothness_every, ignored));
    recorded_times.push_back(window(recorded, config.smoothness_every, result.bytes_during));
  }
  result.plain_milliseconds = median(plain_times);
  result.recorded_milliseconds = median(recorded_times);
  result.overhead = result.recorded_milliseconds / result.plain_milliseconds - 1;
  result.bytes_after = recorded.recorder()->bytes_held();
  result.threads = at::get_num_threads();
  return result;
}

}  // namespace gluon::benchmarks
