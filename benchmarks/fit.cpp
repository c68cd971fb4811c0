#include <random>
#include <vector>

#include "benchmarks/benchmarks.h"
#include "gluon/core/check.h"
#include "gluon/fit/median.h"

namespace gluon::benchmarks {
FitResult run_fit(int64_t samples, int64_t repeats) {
  GLUON_CHECK(samples >= 2, "bench fit: samples must be >= 2, got ", samples);
  GLUON_CHECK(repeats >= 1, "bench fit: repeats must be >= 1, got ", repeats);
  std::mt19937_64 random(0);
  std::uniform_real_distribution<double> size(0.1, 10);
  std::uniform_real_distribution<double> noise(0.5, 1.5);
  std::vector<double> smoothness, gradient;
  for (int64_t i = 0; i < samples; ++i) {
    gradient.push_back(size(random));
    smoothness.push_back((2 + 3 * gradient.back()) * noise(random));
  }
  FitResult result;
  std::vector<double> times, passes;
  for (int64_t i = 0; i < repeats; ++i) {
    lab::Stopwatch stopwatch;
    result.fit = fit_smoothness(smoothness, gradient, {.skip_first = 0});
    times.push_back(1e3 * stopwatch.lap());
    double xx = 0, xy = 0;
#pragma omp simd reduction(+ : xx, xy)
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      xx += gradient[k] * gradient[k];
      xy += gradient[k] * smoothness[k];
    }
    volatile double sink = xx + xy;  // keeps the sums
    (void)sink;
    passes.push_back(1e3 * stopwatch.lap());
  }
  result.milliseconds = median(times);
  result.pass_milliseconds = median(passes);
  return result;
}

}  // namespace gluon::benchmarks
