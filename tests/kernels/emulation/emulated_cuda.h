// CUDA kernels on a CPU: every thread of a block is a fiber, blocks run one after another. For the checks of kernels that
// use threads, shared memory, warp shuffles and atomics, where there is no GPU; tensor cores, the copy engine and
// clusters are not emulated, and neither is timing: a race may go unseen.
//
// Included before everything else in a source that translate.py has rewritten: kernel<<<grid, block, shared, stream>>>(x)
// becomes emulated::Launch(grid, block, shared, stream)(kernel, x).

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace gluon::emulated {

/// Where the running fiber is.
inline uint3 thread{}, block{};
inline dim3 grid;

/// Returns when all threads of the block, or of the warp, have arrived or ended.
void sync_block();
void sync_warp();

/// Memory of 8 bytes of a lane of this thread's warp.
void* slot_of(unsigned lane);

template <typename T> T shuffle_xor(T value, int offset) {
  static_assert(sizeof(T) <= 8);
  std::memcpy(slot_of(thread.x % 32), &value, sizeof value);
  sync_warp();
  T other;
  std::memcpy(&other, slot_of((thread.x % 32) ^ static_cast<unsigned>(offset)), sizeof other);
  sync_warp();
  return other;
}

/// Runs `body` in every thread of every block, or keeps it for a graph while `stream` is captured.
void run(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> body);

struct Launch {
  dim3 blocks, threads;
  cudaStream_t stream;

  Launch(dim3 grid_size, dim3 block_size, std::size_t /*shared*/ = 0, cudaStream_t on = nullptr)
      : blocks(grid_size), threads(block_size), stream(on) {}

  template <typename... Parameters, typename... Arguments>
  void operator()(void (*kernel)(Parameters...), Arguments... arguments) const {
    run(blocks, threads, stream, [=] { kernel(arguments...); });
  }
};

template <typename T> T atomic(T* address, T value) {
  const T old = *address;
  *address = value;
  return old;
}

}  // namespace gluon::emulated

inline int atomicMin(int* address, int value) { return gluon::emulated::atomic(address, std::min(*address, value)); }
inline int atomicAdd(int* address, int value) { return gluon::emulated::atomic(address, *address + value); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return gluon::emulated::atomic(address, *address + value);
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __syncthreads() { gluon::emulated::sync_block(); }
template <typename T> T __shfl_xor_sync(unsigned /*mask*/, T value, int offset) {
  return gluon::emulated::shuffle_xor(value, offset);
}

using std::isfinite;
using std::max;
using std::min;

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __grid_constant__
#define threadIdx gluon::emulated::thread
#define blockIdx gluon::emulated::block
#define gridDim gluon::emulated::grid
#define __CUDACC__
