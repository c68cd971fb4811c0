// Half precision directions of a stack as the kernels of update.h and step_factors.h read them: divided by their second
// moments where they have some.

#pragma once

#include "gluon/kernels/cuda/update.h"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {

using MomentKind = SecondMoments::Kind;

// 1 / (sqrt(v) + eps), 0 where that has no value.
__device__ __forceinline__ float inverse_root(float v, float eps) {
  const float divisor = sqrtf(v) + eps;
  return divisor == 0 ? 0 : 1 / divisor;
}

// H of one matrix. Packs of W entries need W to divide `columns` where rows have moments.
template <MomentKind kKind> struct Directions {
  const __half* entries;
  const float* moments;  // of this matrix
  int64_t columns;
  float eps;

  __device__ Directions(const __half* all, const SecondMoments& second, int64_t matrix, int64_t size)
      : entries(all + matrix * size), moments(second.values), columns(second.columns), eps(second.eps) {
    if (kKind != MomentKind::kNone) moments += matrix * (kKind == MomentKind::kRows ? size / columns : size);
  }

  // Whether packs of 4 are aligned and lie in one row.
  __device__ bool wide(int64_t size) const {
    if (size % 4 != 0 || !is_aligned(entries, 8)) return false;
    if (kKind == MomentKind::kRows) return columns % 4 == 0;
    return kKind == MomentKind::kNone || is_aligned(moments, 16);
  }

  template <int W> __device__ __forceinline__ Pack<W> load(int64_t at) const {
    Pack<W> d = cuda::load<W>(entries + at);
    if constexpr (kKind == MomentKind::kRows) {
      // Division of 64 bits would take longer than the memory.
      const int64_t row = at >> 32 == 0 && columns >> 32 == 0
                              ? static_cast<int64_t>(static_cast<uint32_t>(at) / static_cast<uint32_t>(columns))
                              : at / columns;
      const float factor = inverse_root(moments[row], eps);
#pragma unroll
      for (int j = 0; j < W; ++j) d.v[j] *= factor;
    } else if constexpr (kKind == MomentKind::kEntries) {
      const Pack<W> v = cuda::load<W>(moments + at);
#pragma unroll
      for (int j = 0; j < W; ++j) d.v[j] *= inverse_root(v.v[j], eps);
    }
    return d;
  }
};

// Calls launch() with the kind as a constant.
template <typename Launch> void for_kind(MomentKind kind, Launch launch) {
  if (kind == MomentKind::kNone) launch(std::integral_constant<MomentKind, MomentKind::kNone>());
  if (kind == MomentKind::kRows) launch(std::integral_constant<MomentKind, MomentKind::kRows>());
  if (kind == MomentKind::kEntries) launch(std::integral_constant<MomentKind, MomentKind::kEntries>());
}

inline bool are_valid(const SecondMoments& second, int64_t size) {
  return second.kind == MomentKind::kNone ||
         (second.values != nullptr && second.columns > 0 && size % second.columns == 0 && second.unit > 0);
}

}  // namespace gluon::cuda
