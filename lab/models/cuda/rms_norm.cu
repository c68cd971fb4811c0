#include "lab/models/cuda/rms_norm.h"

#include <cfloat>

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;

// One warp per row up to a width of 1024 (8 rows per block), one block per row above. A thread holds up to 4 packs of 8
// entries, 16 bytes; neighbouring threads hold neighbouring packs. H200, 32768 x 768: forward 25 us, 95 % of
// the copy bound of 4.2 TB/s; backward 36 us, 100 %, with the residual's gradient 47 us, 102 %.
constexpr int kThreads = 256;
using Eight = Packed<8, __nv_bfloat16>;

template <int RowThreads> __device__ float row_sum(float value) {
  if constexpr (RowThreads == 32) {
    return reduce_lanes<32>(value, Add());
  } else {
    return reduce_block<RowThreads>(value, Add());
  }
}

// Calls visit(u, at) for a thread's packs of a row: pack u starts at entry `at`.
template <int RowThreads, int Packs, typename Visit> __device__ __forceinline__ void for_row(int width, Visit visit) {
  const int first = static_cast<int>(threadIdx.x % RowThreads) * 8;
#pragma unroll
  for (int u = 0; u < Packs; ++u) {
    const int at = first + u * RowThreads * 8;
    if (at < width) visit(u, at);
  }
}

template <int RowThreads, int Packs>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __nv_bfloat16* x, __nv_bfloat16* out, float* inverse, int64_t rows, int width) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / RowThreads) + threadIdx.x / RowThreads;
  if (row >= rows) return;  // whole warps, or none of the block
  const int64_t start = row * width;
  Eight s[Packs];
  for_row<RowThreads, Packs>(width, [&](int u, int at) { s[u] = load_packed<8>(x + start + at); });
  float squares = 0;
  for_row<RowThreads, Packs>(width, [&](int u, int) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v = to_float(s[u].entries[j]);
      squares = fmaf(v, v, squares);
    }
  });
  const float r = rsqrtf(row_sum<RowThreads>(squares) / width + FLT_EPSILON);
  if (threadIdx.x % RowThreads == 0) inverse[row] = r;
  for_row<RowThreads, Packs>(width, [&](int u, int at) {
    Pack<8> p = unpack(s[u]);
#pragma unroll
    for (int j = 0; j < 8; ++j) p.v[j] *= r;
    store<8>(out + start + at, p);
  });
}

template <int RowThreads, int Packs>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __nv_bfloat16* out, const float* inverse, const __nv_bfloat16* dout,
                    const __nv_bfloat16* dresidual, __nv_bfloat16* dx, int64_t rows, int width) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / RowThreads) + threadIdx.x / RowThreads;
  if (row >= rows) return;
  const int64_t start = row * width;
  const float r = inverse[row];
  Eight y[Packs], d[Packs], past[Packs];
  for_row<RowThreads, Packs>(width, [&](int u, int at) {
    y[u] = load_packed<8>(out + start + at);
    d[u] = load_packed<8>(dout + start + at);
    if (dresidual != nullptr) past[u] = load_packed<8>(dresidual + start + at);
  });
  float product = 0;
  for_row<RowThreads, Packs>(width, [&](int u, int) {
#pragma unroll
    for (int j = 0; j < 8; ++j) product = fmaf(to_float(y[u].entries[j]), to_float(d[u].entries[j]), product);
  });
  const float along = row_sum<RowThreads>(product) / width;
  for_row<RowThreads, Packs>(width, [&](int u, int at) {
    Pack<8> g = unpack(d[u]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      g.v[j] = r * fmaf(-along, to_float(y[u].entries[j]), g.v[j]);
      if (dresidual != nullptr) g.v[j] += to_float(past[u].entries[j]);
    }
    store<8>(dx + start + at, g);
  });
}

// Calls body.operator()<RowThreads, Packs>() for the width.
template <typename Body> void dispatch(int64_t width, Body body) {
  const auto packs = [&]<int RowThreads>() {
    switch ((width + RowThreads * 8 - 1) / (RowThreads * 8)) {
      case 1: return body.template operator()<RowThreads, 1>();
      case 2: return body.template operator()<RowThreads, 2>();
      case 3: return body.template operator()<RowThreads, 3>();
      default: return body.template operator()<RowThreads, 4>();
    }
  };
  width <= 1024 ? packs.template operator()<32>() : packs.template operator()<kThreads>();
}

bool valid(int64_t rows, int64_t width, std::initializer_list<const void*> addresses) {
  return rows > 0 && width > 0 && width % 8 == 0 && width <= 8192 && are_given(addresses, 16);
}

unsigned blocks_for(int64_t rows, int row_threads) {
  const int64_t each = kThreads / row_threads;
  return static_cast<unsigned>((rows + each - 1) / each);
}

}  // namespace

cudaError_t rms_norm_forward(const __nv_bfloat16* x, __nv_bfloat16* out, float* inverse, int64_t rows, int64_t width,
                             cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (!valid(rows, width, {x, out}) || inverse == nullptr) return cudaErrorInvalidValue;
  dispatch(width, [&]<int RowThreads, int Packs>() {
    forward_kernel<RowThreads, Packs>
        <<<blocks_for(rows, RowThreads), kThreads, 0, stream>>>(x, out, inverse, rows, static_cast<int>(width));
  });
  return cudaGetLastError();
}

cudaError_t rms_norm_backward(const __nv_bfloat16* out, const float* inverse, const __nv_bfloat16* dout,
                              const __nv_bfloat16* dresidual, __nv_bfloat16* dx, int64_t rows, int64_t width,
                              cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (!valid(rows, width, {out, dout, dx}) || inverse == nullptr || !is_aligned(dresidual, 16)) {
    return cudaErrorInvalidValue;
  }
  dispatch(width, [&]<int RowThreads, int Packs>() {
    backward_kernel<RowThreads, Packs><<<blocks_for(rows, RowThreads), kThreads, 0, stream>>>(
        out, inverse, dout, dresidual, dx, rows, static_cast<int>(width));
  });
  return cudaGetLastError();
}

}  // namespace gluon::lab::cuda
