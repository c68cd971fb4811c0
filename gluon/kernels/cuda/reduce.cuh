// Reductions with a fixed order of operations, so that two runs give the same bits: butterflies inside a warp, then a
// sum over the warps of a block. No atomics.

#pragma once

#include <cuda_runtime.h>

namespace gluon::cuda {

struct Add {
  template <typename T> __device__ T operator()(T a, T b) const { return a + b; }
};

/// `value` combined over each group of `Lanes` neighbouring lanes (a power of two); every lane gets the result.
template <int Lanes, typename T, typename Op> __device__ inline T reduce_lanes(T value, Op op) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

/// `value` combined over a block of `Threads` threads (a multiple of 32); every thread gets the result.
template <int Threads, typename T, typename Op> __device__ inline T reduce_block(T value, Op op) {
  constexpr int kWarps = Threads / 32;
  __shared__ T warps[kWarps];
  value = reduce_lanes<32>(value, op);
  __syncthreads();  // a previous reduction may still be read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  T total = warps[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) total = op(total, warps[i]);
  return total;
}

}  // namespace gluon::cuda
