// Device memory for checks and timings of CUDA kernels.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <source_location>
#include <vector>

namespace gluon::kernel_check {

using bf16 = __nv_bfloat16;

/// Ends the program unless the CUDA call succeeded.
inline void require(cudaError_t error, std::source_location where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  std::printf("FAILED %s:%u: %s\n", where.file_name(), static_cast<unsigned>(where.line()), cudaGetErrorString(error));
  std::exit(1);
}

inline double to_double(float x) { return x; }
inline double to_double(__half x) { return __half2float(x); }
inline double to_double(bf16 x) { return __bfloat162float(x); }
template <typename T> T rounded(double x) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(x);
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(static_cast<float>(x));
  if constexpr (std::is_same_v<T, bf16>) return __float2bfloat16_rn(static_cast<float>(x));
}

/// Device memory for `size` entries, `offset` entries past an aligned address, all bytes 0xff (NaN in every type).
template <typename T> class Array {
 public:
  explicit Array(size_t size, size_t offset = 0) : size_(size), offset_(offset) {
    require(cudaMalloc(&memory_, (size + offset + kGuard) * sizeof(T)));
    poison();
  }
  explicit Array(const std::vector<T>& values, size_t offset = 0) : Array(values.size(), offset) { set(values); }
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
    std::vector<unsigned char> bytes(kGuard * sizeof(T));
    require(cudaMemcpy(bytes.data(), data() + size_, bytes.size(), cudaMemcpyDeviceToHost));
    return bytes == std::vector<unsigned char>(bytes.size(), 0xff);
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t size_, offset_;
  T* memory_ = nullptr;
};

template <typename... T> void poison(Array<T>&... arrays) { (arrays.poison(), ...); }

using Bits = std::vector<unsigned char>;

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

}  // namespace gluon::kernel_check
