// Checks of CUDA kernels against float64 on the CPU, in programs without torch or a test framework, so that they build
// wherever nvcc does.
//
// Outputs are filled with NaN before every run and followed by a guard that no kernel may change. Every check runs its
// kernels twice from the same state and compares the bits.

#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gluon/core/check.h"
#include "tests/kernels/device_array.h"

namespace gluon::kernel_check {

/// Counts a check, and prints it if it failed.
void expect(bool holds, const std::string& what);

/// Calls run(), which sets its inputs and poisons its outputs, twice; expects the same bits and intact guards.
template <typename... T>
void expect_repeatable(const std::string& what, const std::function<void()>& run, const Array<T>&... outputs) {
  run();
  const Bits first = bits_of(outputs...);
  run();
  expect(first == bits_of(outputs...), what + ": two runs differ");
  expect((outputs.guard_intact() && ...), what + ": the guard was changed");
}

/// Expects the bits of plain launches from two replays of the same launches captured as a CUDA graph.
void expect_capturable(const std::function<void()>& restore, const std::function<void(cudaStream_t)>& launch,
                       const std::function<Bits()>& bits);

/// Expects every entry within relative |want| + absolute of `want`, and NaN where `want` is NaN.
template <typename T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double relative, double absolute,
                  const std::string& what) {
  size_t bad = 0, worst = 0;
  double excess = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = to_double(got[i]);
    if (std::isnan(value) && std::isnan(want[i])) continue;
    const double over = std::abs(value - want[i]) - (relative * std::abs(want[i]) + absolute);
    if (over <= 0 || value == want[i]) continue;
    if (bad++ == 0 || over > excess) worst = i, excess = over;
  }
  expect(got.size() == want.size(), what + ": size");
  expect(bad == 0, bad == 0 ? what
                            : join(what, ": ", bad, " of ", want.size(), " entries, worst ", worst, ": got ",
                                   to_double(got[worst]), ", expected ", want[worst]));
}

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::fmax(most, std::abs(v));
  return most;
}

struct Check {
  const char* name;
  void (*run)();
};

/// The main() of a program PROGRAM [check|speed]: both without an argument. Returns 1 when a check failed, 77 without a
/// CUDA device. `measure_speed` may be null.
int run_program(int count, char** arguments, const std::vector<Check>& checks, void (*measure_speed)());

}  // namespace gluon::kernel_check
