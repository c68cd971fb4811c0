// Where the time of a training step goes, in seconds.

#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "gluon/core/batch_step.h"

namespace gluon::lab {

struct StepTiming {
  double forward = 0;     // including the data; with a CUDA graph also the backward pass
  double backward = 0;    // until the owners of the layers have the gradients of all ranks
  double optimizer = 0;   // until all ranks have the parameters
  double smoothness = 0;  // samples: the extra evaluation of same_batch, and the norms

  /// The optimizer's share of the step as it is without samples, which few steps take.
  double optimizer_share() const { return optimizer / (forward + backward + optimizer); }
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

/// Another observer with a clock: an optimizer calls its observers inside of its step.
class TimedObserver : public StepObserver {
 public:
  explicit TimedObserver(std::shared_ptr<StepObserver> observer) : observer_(std::move(observer)) {}

  void before_step(int64_t step) override {
    Stopwatch watch;
    observer_->before_step(step);
    seconds_ += watch.lap();
  }
  bool watches(int64_t step) const override { return observer_->watches(step); }
  void after_step(const BatchStep& batch) override {
    Stopwatch watch;
    observer_->after_step(batch);
    seconds_ += watch.lap();
  }

  /// The seconds that the observer took since the last call.
  double take_seconds() { return std::exchange(seconds_, 0); }

 private:
  std::shared_ptr<StepObserver> observer_;
  double seconds_ = 0;
};

}  // namespace gluon::lab
