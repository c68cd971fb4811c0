// fused_check: the memory-bound CUDA kernels against float64 on the CPU, and their speed. A program of its own, without
// torch or a test framework, so that it builds wherever nvcc does.
//
// Outputs are poisoned with NaN before every run and followed by a guard that must survive; every check runs the kernel
// twice from the same state and compares the bits.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace gluon::fused_check {

using bf16 = __nv_bfloat16;

inline void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Checks so far, and those that failed.
struct Tally {
  int checks = 0, failures = 0;
};
Tally& tally();

inline void expect(bool holds, const std::string& what) {
  ++tally().checks;
  if (holds) return;
  ++tally().failures;
  std::printf("FAILED %s\n", what.c_str());
}

inline double to_double(float x) { return x; }
inline double to_double(__half x) { return __half2float(x); }
inline double to_double(bf16 x) { return __bfloat162float(x); }
template <typename T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(x);
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(static_cast<float>(x));
  if constexpr (std::is_same_v<T, bf16>) return __float2bfloat16_rn(static_cast<float>(x));
}

/// Device memory for `size` entries, `offset` entries past an aligned address, all bytes 0xff (NaN in every type).
template <typename T>
class Array {
 public:
  explicit Array(size_t size, size_t offset = 0) : size_(size), offset_(offset) {
    require(cudaMalloc(&memory_, (size + offset + kGuard) * sizeof(T)), "cudaMalloc");
    poison();
  }
  explicit Array(const std::vector<T>& values, size_t offset = 0) : Array(values.size(), offset) {
    set(values);
  }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;

  T* data() const { return memory_ + offset_; }
  size_t size() const { return size_; }
  void poison() {
    require(cudaMemset(memory_, 0xff, (size_ + offset_ + kGuard) * sizeof(T)), "poison");
    require(cudaDeviceSynchronize(), "poison");  // streams of other checks do not wait for it
  }
  void set(const std::vector<T>& values) {
    require(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
            "copy to the device");
  }
  std::vector<T> get() const {
    std::vector<T> values(size_);
    require(cudaDeviceSynchronize(), "kernel");
    require(cudaMemcpy(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    return values;
  }
  bool guard_intact() const {
    std::vector<unsigned char> bytes(kGuard * sizeof(T));
    require(cudaMemcpy(bytes.data(), data() + size_, bytes.size(), cudaMemcpyDeviceToHost),
            "copy of the guard");
    for (unsigned char b : bytes) {
      if (b != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t size_, offset_;
  T* memory_ = nullptr;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Values of size about `magnitude`, rounded to T.
template <typename T>
std::vector<T> random_values(size_t count, double magnitude, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = rounded<T>(magnitude * normal(random));
  return values;
}

/// Every entry within relative |want| + absolute of what is wanted; NaN is wanted where `want` is NaN.
template <typename T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double relative,
                  double absolute, const std::string& what) {
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
  expect(bad == 0, what + ": " + std::to_string(bad) + " of " + std::to_string(want.size()) +
                       " entries, worst " + std::to_string(worst) + ": got " +
                       (got.empty() ? "" : std::to_string(to_double(got[worst]) * 1e9)) + "e-9, wanted " +
                       (want.empty() ? "" : std::to_string(want[worst] * 1e9)) + "e-9");
}

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::fmax(most, std::abs(v));
  return most;
}

/// Derivative of sum(weights * f(x)) by central differences.
std::vector<double> numeric_gradient(const std::function<std::vector<double>(const std::vector<double>&)>& f,
                                     std::vector<double> x, const std::vector<double>& weights);

void check_momentum();
void check_updates();
void check_rms_norm();
void check_qk_rotary();
void check_mlp();
void check_cross_entropy();
void check_embedding_gradient();
void check_graph();
void measure_speed();

}  // namespace gluon::fused_check
