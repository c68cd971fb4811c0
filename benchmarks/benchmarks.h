// What `gluon bench` measures: one optimizer step, whole training steps, the recording of smoothness, the fit. Times
// are medians.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/exactness.h"
#include "gluon/fit/fit.h"
#include "gluon/lmo/norm.h"
#include "lab/train/config.h"
#include "lab/train/step_timing.h"

namespace gluon::benchmarks {

/// Recorded by benchmarks/record_momenta.py; a program away from its sources goes without them.
inline constexpr std::string_view kMomenta = GLUON_MOMENTA;

/// One optimizer step over the hidden matrices of a model, or over its embedding, float32 gradients,
/// momentum and parameters.
///
/// Two sides run in turns, on the same gradients, with the same threads:
///
///   ours        gluon::Optimizer with the muon preset; embedding: unscion's sign descent
///   reference   the public Muon's way: one matrix at a time, Nesterov momentum, five Jordan steps with ordinary
///               products, update; embedding: momentum, sign and update one after another
///
/// With `normalize`, `decay` or `sphere` a third side runs in turns with them: ours with these stages, to be compared with
/// ours without. Errors are distances from the exact direction, relative to its length, on three kinds of matrices (exactness.h);
/// embedding: from sign(g) on Gaussian ones. The bound is the time of our arithmetic at the speed of a large square at::mm
/// measured in the same run; embedding: of 20 bytes a parameter at the speed of a copy.
struct StepOptions {
  std::string model = "gpt124m";  // gpt124m, gpt1b3, cnn or embedding
  std::string device = "cpu";
  std::string orthogonalizer{kDefaultOrthogonalizer};
  std::string momenta{kMomenta};  // the safetensors file of recorded momenta
  std::string normalize{};        // "normuon(0.95)"
  std::string decay{};            // "cautious(0.01)"
  std::string sphere{};           // "auto" or a number
  int64_t layers = 0;             // transformer blocks (cnn: convolutions); 0 is all of them
  int64_t repeats = 3;
};

struct StepSide {
  std::string name;
  double milliseconds = 0;  // median
  double gflops = 0;        // GFLOP/s of the arithmetic this side does
};

struct StepErrors {
  std::string name;
  Errors errors;
};

struct StepResult {
  int64_t matrices = 0;
  int64_t parameters = 0;
  int threads = 0;
  StepSide ours;
  StepSide reference;
  std::optional<StepSide> with_stages;  // ours with the stages asked for; its arithmetic is not counted
  std::vector<StepErrors> errors;       // of ours, the reference, and five bfloat16 steps of Polar Express
  double ratio = 0;                     // reference / ours
  double bound_milliseconds = 0;
};

/// Throws InputError on an unknown model or device, layers outside the model, or repeats < 1.
StepResult run_step(const StepOptions& options);

struct TrainResult {
  double tokens_per_second = 0;
  lab::StepTiming step;  // seconds
  double peak_megabytes = 0;
  int64_t gpu_peak_bytes = 0;  // of tensors; 0 on the CPU
  int threads = 0;
};

/// Three warm-up steps (on a GPU the third one captures the graph), then `repeats` steps of `config`. Throws InputError
/// as gluon train does.
TrainResult run_train(const lab::TrainConfig& config, int64_t repeats);

struct SmoothnessResult {
  double plain_milliseconds = 0;  // of a window of `every` steps, in which one sample falls
  double recorded_milliseconds = 0;
  double overhead = 0;       // recorded / plain - 1
  int64_t bytes_during = 0;  // of copies, while a sampled pair is open
  int64_t bytes_after = 0;   // between pairs
  int threads = 1;
};

/// Cost of recording smoothness: `windows` windows of `config.smoothness_every` steps with and without a recorder,
/// in turns. Throws InputError as a training run does.
SmoothnessResult run_smoothness(const lab::TrainConfig& config, int64_t windows);

struct FitResult {
  double milliseconds = 0;       // of the fit
  double pass_milliseconds = 0;  // of the least squares sums over the same samples, which no fit can do without
  Fit fit;
};

/// Fits samples Lhat = (2 + 3 |g|*) times a random factor in [0.5, 1.5]. Throws InputError unless samples >= 2 and
/// repeats >= 1.
FitResult run_fit(int64_t samples, int64_t repeats);

}  // namespace gluon::benchmarks
