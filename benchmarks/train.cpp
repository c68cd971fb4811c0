#include "benchmarks/train.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <chrono>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"
#include "gluon/kernels/kernels.h"
#include "lab/train/experiment.h"

namespace gluon::benchmarks {

TrainResult run_train(const lab::TrainConfig& config, int64_t repeats) {
  GLUON_CHECK(repeats >= 1, "bench train: repeats must be >= 1, got ", repeats);
  const lab::Experiment experiment = lab::make_experiment(config);
  lab::Trainer trainer(config, experiment.model, experiment.dataset);
  for (int warmup = 0; warmup < 3; ++warmup) trainer.step();
  // Timing the stages waits for the GPU after each, so the speed is measured without it.
  std::vector<double> whole;
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    trainer.step();
    whole.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  trainer.time_stages();
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> optimizer;
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

}  // namespace gluon::benchmarks
