// Benchmark of one optimizer step over the hidden matrices of a model, or over its embedding, float32 gradients,
// momentum and parameters.
//
// Two sides run in turns, on the same gradients, with the same threads:
//
//   ours        gluon::Optimizer with the muon preset; embedding: unscion's sign descent
//   reference   the public Muon's way: one matrix at a time, Nesterov momentum, five Jordan steps with ordinary
//               products, update; embedding: momentum, sign and update one after another
//
// The error of a side is the root mean square, over one matrix of each shape, of |P - U V^T|_F / sqrt(min(m, n)): P is
// how a zero parameter moved, in units of the radius, U V^T comes from a float64 SVD (embedding: sign(g) of size
// |P - sign(g)|_F / sqrt(m n)). The bound is the time of our arithmetic at the speed of a large square product (at::mm)
// measured in the same run; embedding: of 20 bytes a parameter at the speed of a copy.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gluon/lmo/norm.h"

namespace gluon::benchmarks {

struct StepOptions {
  std::string model = "gpt124m";  // gpt124m, gpt1b3, cnn or embedding
  std::string device = "cpu";
  std::string orthogonalizer{kDefaultOrthogonalizer};
  int64_t layers = 0;  // transformer blocks (cnn: convolutions); 0 is all of them
  int64_t repeats = 3;
};

struct StepSide {
  std::string name;
  double milliseconds = 0;  // median
  double gflops = 0;        // GFLOP/s of the arithmetic this side does
  double error = 0;
};

struct StepResult {
  int64_t matrices = 0;
  int64_t parameters = 0;
  int threads = 0;
  StepSide ours;
  StepSide reference;
  double ratio = 0;  // reference / ours
  double bound_milliseconds = 0;
};

/// Throws InputError on an unknown model or device, layers outside the model, or repeats < 1.
StepResult run_step(const StepOptions& options);

}  // namespace gluon::benchmarks
