// Times of memory-bound kernels as the rows of a table, beside the time that a copy of the same bytes takes. Median of
// 20 runs, each after the L2 cache was filled with something else.

#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "tests/kernels/device_array.h"

namespace gluon::kernel_check {

template <typename T> __global__ void fill_kernel(T* data, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    const float v = static_cast<float>(h ^ (h >> 16)) * 0x1p-31F - 1;
    if constexpr (std::is_same_v<T, float>) data[i] = v;
    if constexpr (std::is_same_v<T, __half>) data[i] = __float2half_rn(v);
    if constexpr (std::is_same_v<T, bf16>) data[i] = __float2bfloat16_rn(v);
  }
}

/// Random entries in [-1, 1).
template <typename T> void fill_random(const Array<T>& array) {
  fill_kernel<<<1024, 256>>>(array.data(), array.size(), static_cast<unsigned>(array.size()));
  require(cudaGetLastError());
}

template <typename T> struct Random : Array<T> {
  explicit Random(size_t count) : Array<T>(count) { fill_random(*this); }
};

static __global__ void read_kernel(const uint4* data, size_t count, unsigned* sink) {
  unsigned sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    sum ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  }
  if (sum == 12345) *sink = sum;
}

class Clock {
 public:
  /// Prints the head of the table.
  Clock() {
    require(cudaEventCreate(&start_));
    require(cudaEventCreate(&stop_));
    std::printf("| %-34s | %-22s | %8s | %6s | %7s |\n", "kernel", "shape", "us", "GB/s", "4.2 TB/s");
    std::printf("|%s|%s|%s|%s|%s|\n", std::string(36, '-').c_str(), std::string(24, '-').c_str(),
                "---------:", "-------:", "--------:");
  }

  void row(const char* kernel, const std::string& shape, double bytes, const std::function<cudaError_t()>& launch) {
    std::vector<float> times;
    for (int i = 0; i < 23; ++i) {
      read_kernel<<<1024, 256>>>(reinterpret_cast<const uint4*>(other_.data()), other_.size() / 4, sink_.data());
      require(cudaEventRecord(start_));
      require(launch());
      require(cudaEventRecord(stop_));
      require(cudaEventSynchronize(stop_));
      float ms = 0;
      require(cudaEventElapsedTime(&ms, start_, stop_));
      if (i >= 3) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const double seconds = (times[9] + times[10]) / 2 * 1e-3;
    std::printf("| %-34s | %-22s | %8.1f | %6.0f | %5.1f %% |\n", kernel, shape.c_str(), seconds * 1e6,
                bytes / seconds * 1e-9, 100 * bytes / seconds / kCopyBound);
  }

 private:
  static constexpr double kCopyBound = 4.2e12;  // bytes a second
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Array<unsigned> other_{64 << 20}, sink_{1};
};

}  // namespace gluon::kernel_check
