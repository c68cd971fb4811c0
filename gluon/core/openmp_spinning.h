// Limits how long idle OpenMP threads spin while the process has to share its cores.
//
// A thread of libgomp that waits for the others spins for milliseconds before it sleeps. That is fast as long as every
// thread has a core of its own. If another process takes one of the cores, the spinning threads use up the time slices
// of those that work: beside one busy process, training on 2 cores takes 18 times as long. libgomp spins only briefly
// (100 rounds) as long as there are more OpenMP threads than cores. So while this process waits for cores, we hold
// additional OpenMP threads, which sleep.
//
// The environment variables GOMP_SPINCOUNT and OMP_WAIT_POLICY fix the spinning at the start of the process; they win.

#pragma once

#include <chrono>
#include <optional>
#include <thread>

namespace gluon {

/// The time that the live threads of this process have spent ready to run but without a core, or nothing where the
/// system does not report it.
std::optional<std::chrono::nanoseconds> time_without_core();

/// Makes libgomp's threads spin briefly for the lifetime of the object, whatever the load.
class BriefSpinning {
 public:
  /// `threads` is the number of OpenMP threads the program computes with.
  explicit BriefSpinning(int threads);

 private:
  std::jthread owner_;
};

/// Watches time_without_core() from a thread of its own and holds a BriefSpinning as long as the process waits for
/// cores. Does nothing where that time is unknown, where `threads` is 1, or where the user's environment decides.
class SpinningLimit {
 public:
  explicit SpinningLimit(int threads);

  /// Whether it watches.
  bool active() const { return watcher_.joinable(); }

 private:
  std::jthread watcher_;
};

}  // namespace gluon
