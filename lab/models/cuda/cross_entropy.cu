#include "lab/models/cuda/cross_entropy.h"

#include <algorithm>

#include "gluon/kernels/cuda/hopper.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;

constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;
constexpr float kLowest = -3.0e38F;  // below every finite logit's maximum, without the NaN of inf - inf

__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The sum of exp(x - largest) over some entries.
struct Softmax {
  float largest, sum;
};

__device__ Softmax combine(Softmax a, Softmax b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest,
          a.sum * power_of_two((a.largest - largest) * kLog2E) + b.sum * power_of_two((b.largest - largest) * kLog2E)};
}

__device__ __forceinline__ Softmax combine_warp(Softmax value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(
        value, {__shfl_xor_sync(0xffffffffu, value.largest, offset), __shfl_xor_sync(0xffffffffu, value.sum, offset)});
  }
  return value;
}

// Combines over one warp, then over the warps, in a fixed order; `shared` has an entry for each warp.
template <int Threads> __device__ Softmax combine_block(Softmax value, Softmax* shared) {
  value = combine_warp(value);
  const int lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  return combine_warp(lane < Threads / 32 ? shared[lane] : Softmax{kLowest, 0});
}

__device__ float loss_of(Softmax total, float label_logit) {
  return total.largest - label_logit + kLn2 * log2f(total.sum);
}

// ---- Hopper: one block per multiprocessor, which takes every gridDim.x-th row. Bulk copies fill two rows of shared
// memory ahead of the work; 640 threads hold up to 10 packs of 8 entries each in registers, so a buffer is free again
// as soon as it was read. 640 x 10 x 8 = 51200 entries; GPT-2's 50304 fill 98 % of them. 4 bytes per entry; H200, 32768
// x 50304: 1.67 ms, 94 % of the copy bound of 4.2 TB/s; the loss alone 0.74 ms, 106 %.

constexpr int kThreads = 640;
constexpr int kPacks = 10;
constexpr int kBuffers = 2;
static_assert(kThreads * kPacks * 8 == 51200);  // the limit in cross_entropy.h and NanoGpt::slow_part()

__device__ void fetch_row(void* buffer, const void* row, unsigned bytes, const uint64_t* barrier) {
  const uint32_t full = hopper::shared_address(barrier);
  hopper::barrier_expect(full, bytes);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   hopper::shared_address(buffer)),
               "l"(row), "r"(bytes), "r"(full)
               : "memory");
}

using Eight = Packed<8, __nv_bfloat16>;

__device__ float largest_of(const Eight& pack) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(pack.entries);
  const __nv_bfloat162 top = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
  return fmaxf(__low2float(top), __high2float(top));
}

template <bool Gradient> __global__ void __launch_bounds__(kThreads, 1) bulk_kernel(CrossEntropy a) {
  extern __shared__ __align__(128) unsigned char buffers[];
  __shared__ uint64_t full[kBuffers];
  __shared__ Softmax warps[kBuffers][kThreads / 32];
  const int packs = static_cast<int>(a.vocabulary / 8);
  const unsigned bytes = static_cast<unsigned>(packs) * 16;
  const int me = threadIdx.x;
  if (me == 0) {
    for (int b = 0; b < kBuffers; ++b) hopper::barrier_init(hopper::shared_address(full + b), 1);
    hopper::barrier_init_fence();
    hopper::async_proxy_fence();
    for (int b = 0; b < kBuffers; ++b) {
      const int64_t row = blockIdx.x + static_cast<int64_t>(b) * gridDim.x;
      if (row < a.rows) fetch_row(buffers + b * bytes, a.logits + row * a.vocabulary, bytes, full + b);
    }
  }
  __syncthreads();
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, ++turn) {
    const int b = turn % kBuffers;
    const int64_t label = a.labels[row];
    const bool labelled = label >= 0 && label < a.vocabulary;
    hopper::barrier_wait(hopper::shared_address(full + b), turn / kBuffers % 2);
    const auto* buffer = reinterpret_cast<const __nv_bfloat16*>(buffers + b * bytes);
    const float label_logit = labelled && me == 0 ? to_float(buffer[label]) : NAN;
    Eight x[kPacks];
    Softmax mine{kLowest, 0};
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int pack = u * kThreads + me;
      if (pack >= packs) continue;
      x[u] = load_packed<8>(buffer + pack * 8);
      mine.largest = fmaxf(mine.largest, largest_of(x[u]));
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (u * kThreads + me >= packs) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        mine.sum += power_of_two((to_float(x[u].entries[j]) - mine.largest) * kLog2E);
      }
    }
    // After the barrier inside, every thread has read the buffer. `warps` alternates, so that one barrier is enough.
    const Softmax total = combine_block<kThreads>(mine, warps[b]);
    if (me == 0) {
      const int64_t next = row + static_cast<int64_t>(kBuffers) * gridDim.x;
      if (next < a.rows) fetch_row(buffers + b * bytes, a.logits + next * a.vocabulary, bytes, full + b);
      a.losses[row] = loss_of(total, label_logit);
    }
    if constexpr (!Gradient) continue;
    const float factor = labelled ? a.scale / total.sum : NAN;
    __nv_bfloat16* out = a.logits + row * a.vocabulary;
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int pack = u * kThreads + me;
      if (pack >= packs) continue;
      Pack<8> p = unpack(x[u]);
#pragma unroll
      for (int j = 0; j < 8; ++j) p.v[j] = power_of_two((p.v[j] - total.largest) * kLog2E) * factor;
      if (label / 8 == pack) {
#pragma unroll
        for (int j = 0; j < 8; ++j) p.v[j] -= label % 8 == j ? a.scale : 0.0F;
      }
      store<8>(out + pack * 8, p);
    }
  }
}

// ---- any vocabulary, any alignment: one block per row, read twice, 2 bytes at a time. 32768 x 50257: 4.2 ms.

constexpr int kPlainThreads = 512;

template <bool Gradient> __global__ void __launch_bounds__(kPlainThreads) plain_kernel(CrossEntropy a) {
  __shared__ Softmax warps[kPlainThreads / 32];
  __nv_bfloat16* x = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  const int64_t label = a.labels[blockIdx.x];
  const bool labelled = label >= 0 && label < a.vocabulary;
  const float label_logit = labelled ? to_float(x[label]) : NAN;
  Softmax mine{kLowest, 0};
#pragma unroll 4
  for (int64_t j = threadIdx.x; j < a.vocabulary; j += kPlainThreads) {
    mine = combine(mine, {to_float(x[j]), 1});
  }
  const Softmax total = combine_block<kPlainThreads>(mine, warps);
  if (threadIdx.x == 0) a.losses[blockIdx.x] = loss_of(total, label_logit);
  if constexpr (!Gradient) return;
  const float factor = labelled ? a.scale / total.sum : NAN;
#pragma unroll 4
  for (int64_t j = threadIdx.x; j < a.vocabulary; j += kPlainThreads) {
    const float p = power_of_two((to_float(x[j]) - total.largest) * kLog2E) * factor;
    x[j] = __float2bfloat16_rn(j == label ? p - a.scale : p);
  }
}

}  // namespace

cudaError_t cross_entropy(const CrossEntropy& a, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  if (a.rows < 0 || a.vocabulary <= 0 || !are_given({a.logits, a.labels, a.losses})) return cudaErrorInvalidValue;
  int device = 0, processors = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess && major != 9) error = cudaErrorNotSupported;
  if (error != cudaSuccess) return error;
  if (a.vocabulary % 8 == 0 && is_aligned(a.logits, 16) && a.vocabulary <= kThreads * kPacks * 8) {
    const auto kernel = a.gradient ? bulk_kernel<true> : bulk_kernel<false>;
    const int shared = static_cast<int>(kBuffers * a.vocabulary * 2);  // up to 200 of Hopper's 227 KiB
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return error;
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(a.rows, processors));
    kernel<<<blocks, kThreads, static_cast<size_t>(shared), stream>>>(a);
  } else {
    const auto kernel = a.gradient ? plain_kernel<true> : plain_kernel<false>;
    kernel<<<static_cast<unsigned>(a.rows), kPlainThreads, 0, stream>>>(a);
  }
  return cudaGetLastError();
}

}  // namespace gluon::lab::cuda
