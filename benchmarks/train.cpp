#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "benchmarks/benchmarks.h"
#include "gluon/core/check.h"
#include "gluon/fit/median.h"
#include "gluon/kernels/kernels.h"
#include "lab/train/experiment.h"
#include "lab/train/trainer.h"

namespace gluon::benchmarks {
namespace {

lab::Trainer make_trainer(const lab::TrainConfig& config) {
  const lab::Experiment experiment = lab::make_experiment(config);
  return {config, experiment.model, experiment.dataset};
}

}  // namespace

TrainResult run_train(const lab::TrainConfig& config, int64_t repeats) {
  GLUON_CHECK(repeats >= 1, "bench train: repeats must be >= 1, got ", repeats);
  lab::Trainer trainer = make_trainer(config);
  for (int warmup = 0; warmup < 3; ++warmup) trainer.step();
  // Timing the stages waits for the GPU after each, so the speed is measured without it.
  std::vector<double> whole, forward, backward, optimizer;
  lab::Stopwatch stopwatch;
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    trainer.step();
    whole.push_back(stopwatch.lap());
  }
  trainer.time_stages();
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    trainer.step();
    const lab::StepTiming& timing = trainer.last_timing();
    forward.push_back(timing.forward);
    backward.push_back(timing.backward);
    optimizer.push_back(timing.optimizer);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {static_cast<double>(trainer.tokens_per_step()) / median(whole),
          {median(forward), median(backward), median(optimizer)},
          static_cast<double>(usage.ru_maxrss) / 1024,
          kernels::peak_bytes(torch::Device(config.device)),
          at::get_num_threads()};
}

SmoothnessResult run_smoothness(const lab::TrainConfig& config, int64_t windows) {
  GLUON_CHECK(windows >= 1, "bench smoothness: windows must be >= 1, got ", windows);
  GLUON_CHECK(config.smoothness_every >= 2, "bench smoothness: --smoothness-every must be >= 2, got ",
              config.smoothness_every);
  GLUON_CHECK(config.smoothness_start == 0, "bench smoothness: --smoothness-start must be 0, got ",
              config.smoothness_start);
  lab::TrainConfig without = config;
  without.smoothness_every = 0;
  lab::Trainer plain = make_trainer(without);
  lab::Trainer recorded = make_trainer(config);
  SmoothnessResult result;
  std::vector<double> plain_times, recorded_times;
  for (int64_t i = 0; i < windows; ++i) {
    lab::Stopwatch stopwatch;
    for (int64_t step = 0; step < config.smoothness_every; ++step) plain.step();
    plain_times.push_back(1e3 * stopwatch.lap());
    for (int64_t step = 0; step < config.smoothness_every; ++step) {
      recorded.step();
      result.bytes_during = std::max(result.bytes_during, recorded.recorder()->bytes_held());
    }
    recorded_times.push_back(1e3 * stopwatch.lap());
  }
  result.plain_milliseconds = median(plain_times);
  result.recorded_milliseconds = median(recorded_times);
  result.overhead = result.recorded_milliseconds / result.plain_milliseconds - 1;
  result.bytes_after = recorded.recorder()->bytes_held();
  result.threads = at::get_num_threads();
  return result;
}

}  // namespace gluon::benchmarks
