// Packs: W neighbouring entries of a row, read and written by one instruction and computed with in float32.
//
//   W    float32     half, bfloat16    used by
//   1    4 bytes     2 bytes           sizes and addresses that are not aligned
//   4    16 bytes    8 bytes           kernels whose traffic is mostly float32, as the optimizer's
//   8    -           16 bytes          kernels in bfloat16 throughout
//
// Reading a pack needs an address divisible by its size, which is_aligned() checks.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace gluon::cuda {

template <int W> struct Pack { float v[W]; };

__host__ __device__ inline bool is_aligned(const void* address, unsigned bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

/// Whether no address is null and all are divisible by `bytes`.
inline bool are_given(std::initializer_list<const void*> addresses, unsigned bytes = 1) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const void* address) { return address != nullptr && is_aligned(address, bytes); });
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline __half from_float<__half>(float x) { return __float2half_rn(x); }
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

// The machine word that holds `Bytes` bytes.
template <int Bytes> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

template <int W, typename T> struct Packed {
  using Bits = typename Word<W * sizeof(T)>::type;
  union {
    Bits bits;
    T entries[W];
  };
  __device__ Packed() {}
};

template <int W, typename T> __device__ inline Pack<W> unpack(const Packed<W, T>& packed) {
  Pack<W> pack;
#pragma unroll
  for (int i = 0; i < W; ++i) pack.v[i] = to_float(packed.entries[i]);
  return pack;
}

template <int W, typename T> __device__ inline Packed<W, T> load_packed(const T* address) {
  Packed<W, T> packed;
  packed.bits = *reinterpret_cast<const typename Packed<W, T>::Bits*>(address);
  return packed;
}

template <int W, typename T> __device__ inline Pack<W> load(const T* address) {
  return unpack<W, T>(load_packed<W>(address));
}

template <int W, typename T> __device__ inline void store(T* address, const Pack<W>& pack) {
  Packed<W, T> packed;
#pragma unroll
  for (int i = 0; i < W; ++i) packed.entries[i] = from_float<T>(pack.v[i]);
  *reinterpret_cast<typename Packed<W, T>::Bits*>(address) = packed.bits;
}

/// Calls visit(u, at) for the packs of a tile that a thread of a block of kThreads works on: pack u starts at entry
/// `at`, which is below `end`. Neighbouring threads have neighbouring packs.
template <int kThreads, int kTile, int W, typename Visit>
__device__ __forceinline__ void for_packs(int64_t tile, int64_t end, Visit visit) {
#pragma unroll
  for (int u = 0; u < kTile / (kThreads * W); ++u) {
    const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
    if (at < end) visit(u, at);
  }
}

}  // namespace gluon::cuda
