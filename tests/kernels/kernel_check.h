// Checks of CUDA kernels against float64 on the CPU, in programs without torch or a test framework, so that they build
// wherever nvcc does.
//
// Outputs are filled with NaN before every run and followed by a guard that no kernel may change. Every check runs its
// kernels twice from the same state and compares the bits.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "gluon/core/check.h"

namespace gluon::kernel_check {

using bf16 = __nv_bfloat16;
using Vector = std::vector<double>;
using Bits = std::vector<unsigned char>;

inline constexpr double kRounding = 0x1p-8 * 1.01;  // relative error of one rounding to bfloat16

/// Ends the program unless the CUDA call succeeded.
inline void require(cudaError_t error, std::source_location where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  std::printf("FAILED %s:%u: %s\n", where.file_name(), static_cast<unsigned>(where.line()), cudaGetErrorString(error));
  std::exit(1);
}

template <typename T> double to_double(T x) { return static_cast<float>(x); }
template <typename T> T rounded(double x) { return T(static_cast<float>(x)); }

/// Device memory for `size` entries, `offset` entries past an aligned address, all bytes 0xff (NaN in every type).
template <typename T> class Array {
 public:
  explicit Array(size_t size, size_t offset = 0) : size_(size), offset_(offset) {
    require(cudaMalloc(&memory_, (size + offset + kGuard) * sizeof(T)));
    poison();
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) { set(values); }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;

  T* data() const { return memory_ + offset_; }
  size_t size() const { return size_; }
  void poison() {
    require(cudaMemset(memory_, 0xff, (size_ + offset_ + kGuard) * sizeof(T)));
    require(cudaDeviceSynchronize());  // streams of other checks do not wait for it
  }
  void set(const std::vector<T>& values) {
    require(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const {
    std::vector<T> values(size_);
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  bool guard_intact() const {
    Bits bytes(kGuard * sizeof(T));
    require(cudaMemcpy(bytes.data(), data() + size_, bytes.size(), cudaMemcpyDeviceToHost));
    return bytes == Bits(bytes.size(), 0xff);
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t size_, offset_;
  T* memory_ = nullptr;
};

template <typename... T> void poison(Array<T>&... arrays) { (arrays.poison(), ...); }

template <typename T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// The bytes of all arrays, one after another.
template <typename... T> Bits bits_of(const Array<T>&... arrays) {
  Bits all;
  const auto add = [&](const auto& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    all.insert(all.end(), bytes, bytes + values.size() * sizeof(values[0]));
  };
  (add(arrays.get()), ...);
  return all;
}

/// Values of size about `magnitude`, rounded to T.
template <typename T> std::vector<T> random_values(size_t count, double magnitude, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = rounded<T>(magnitude * normal(random));
  return values;
}

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

/// Expects the bits of plain launches from `replays` replays of the same launches captured as a CUDA graph.
void expect_capturable(const std::function<void()>& restore, const std::function<void(cudaStream_t)>& launch,
                       const std::function<Bits()>& bits, int replays = 2);

/// The values in float64.
template <typename T> Vector doubles(const std::vector<T>& values) {
  Vector result;
  for (const T value : values) result.push_back(to_double(value));
  return result;
}

double largest(const Vector& values);

/// Expects every entry within relative |want| + absolute of `want`, and NaN where `want` is NaN.
void expect_close(const Vector& got, const Vector& want, double relative, double absolute, const std::string& what);
template <typename T>
void expect_close(const std::vector<T>& got, const Vector& want, double relative, double absolute,
                  const std::string& what) {
  expect_close(doubles(got), want, relative, absolute, what);
}

struct Check {
  const char* name;
  void (*run)();
};

/// The main() of a program: runs the checks. Returns 1 when one failed, 77 without a CUDA device.
int run_program(const char* program, const std::vector<Check>& checks);

}  // namespace gluon::kernel_check
