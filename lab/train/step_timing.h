// Where the time of a training step goes, in seconds.

#pragma once

#include <chrono>
#include <utility>

namespace gluon::lab {

struct StepTiming {
  double forward = 0;    // including the data; with a CUDA graph also the backward pass
  double backward = 0;   // until the owners of the layers have the gradients of all ranks
  double optimizer = 0;  // until all ranks have the parameters
  double reference = 0;  // the extra evaluation for same_batch smoothness samples

  double total() const { return forward + backward + optimizer + reference; }
};

class Stopwatch {
 public:
  /// Seconds since the last call, or since construction.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gluon::lab
