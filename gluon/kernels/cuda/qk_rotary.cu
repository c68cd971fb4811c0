#include "gluon/kernels/cuda/qk_rotary.h"

#include <cfloat>

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {
namespace {

// `Lanes` neighbouring threads share a token. A thread holds 8 entries of each half of a head, two reads of 16 bytes,
// so that no rotation crosses threads, and keeps their cosines and sines for all heads of the token.
constexpr int kThreads = 256;

struct Angles {
  Pack<4> cos[2], sin[2];
};

struct Halves {
  Pack<8> first, second;
};

__device__ __forceinline__ Halves load_halves(const __nv_bfloat16* head, int half) {
  return {load<8>(head), load<8>(head + half)};
}

__device__ __forceinline__ void store_halves(__nv_bfloat16* head, int half, const Halves& x) {
  store<8>(head, x.first);
  store<8>(head + half, x.second);
}

__device__ __forceinline__ Angles load_angles(const RotaryShape& shape, int64_t token, int column) {
  const int64_t at = token % shape.positions * (shape.dimension / 2) + column;
  Angles angles;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    angles.cos[i] = load<4>(shape.cos + at + 4 * i);
    angles.sin[i] = load<4>(shape.sin + at + 4 * i);
  }
  return angles;
}

// [x1 cos + x2 sin, x2 cos - x1 sin] times `factor`; Forward false: the inverse rotation.
template <bool Forward>
__device__ __forceinline__ Halves rotate(const Halves& x, const Angles& angles, float factor) {
  Halves out;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float cos = angles.cos[j / 4].v[j % 4] * factor;
    const float sin = angles.sin[j / 4].v[j % 4] * (Forward ? factor : -factor);
    out.first.v[j] = fmaf(x.first.v[j], cos, x.second.v[j] * sin);
    out.second.v[j] = fmaf(x.second.v[j], cos, -x.first.v[j] * sin);
  }
  return out;
}

__device__ __forceinline__ float product(const Halves& a, const Halves& b) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(a.first.v[j], b.first.v[j], fmaf(a.second.v[j], b.second.v[j], sum));
  return sum;
}

template <int Lanes>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(RotaryShape shape, ConstHeads query, ConstHeads key, Heads query_out, Heads key_out,
                   float* inverse_rms) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kThreads / Lanes) + threadIdx.x / Lanes;
  const int lane = threadIdx.x % Lanes;
  const int dimension = static_cast<int>(shape.dimension), half = dimension / 2, heads = static_cast<int>(shape.heads);
  // A lane without work still takes part in the sums.
  const bool active = token < shape.tokens && lane * 8 < half;
  const Angles angles = active ? load_angles(shape, token, lane * 8) : Angles{};
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const ConstHeads in = part == 0 ? query : key;
    const Heads out = part == 0 ? query_out : key_out;
    const __nv_bfloat16* from = in.data + token * in.token_stride + lane * 8;
    __nv_bfloat16* to = out.data + token * out.token_stride + lane * 8;
#pragma unroll 3
    for (int head = 0; head < heads; ++head) {
      Halves x{};
      if (active) x = load_halves(from + head * dimension, half);
      const float squares = reduce_lanes<Lanes>(product(x, x), Add());
      const float r = rsqrtf(squares / dimension + FLT_EPSILON);
      if (!active) continue;
      store_halves(to + head * dimension, half, rotate<true>(x, angles, r));
      if (inverse_rms != nullptr && lane == 0) inverse_rms[(token * 2 + part) * heads + head] = r;
    }
  }
}

template <int Lanes>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(RotaryShape shape, RotaryGradients gradients, Heads dquery, Heads dkey, Heads dvalue) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kThreads / Lanes) + threadIdx.x / Lanes;
  const int lane = threadIdx.x % Lanes;
  const int dimension = static_cast<int>(shape.dimension), half = dimension / 2, heads = static_cast<int>(shape.heads);
  const bool active = token < shape.tokens && lane * 8 < half;
  const Angles angles = active ? load_angles(shape, token, lane * 8) : Angles{};
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const ConstHeads kept = part == 0 ? gradients.query_out : gradients.key_out;
    const ConstHeads in = part == 0 ? gradients.dquery_out : gradients.dkey_out;
    const Heads out = part == 0 ? dquery : dkey;
    const __nv_bfloat16* rotated = kept.data + token * kept.token_stride + lane * 8;
    const __nv_bfloat16* from = in.data + token * in.token_stride + lane * 8;
    __nv_bfloat16* to = out.data + token * out.token_stride + lane * 8;
#pragma unroll 2
    for (int head = 0; head < heads; ++head) {
      Halves y{}, d{};
      float r = 0;
      if (active) {
        y = load_halves(rotated + head * dimension, half);
        d = load_halves(from + head * dimension, half);
        r = gradients.inverse_rms[(token * 2 + part) * heads + head];
      }
      const float along = reduce_lanes<Lanes>(product(y, d), Add()) / dimension;
      if (!active) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        d.first.v[j] = fmaf(-along, y.first.v[j], d.first.v[j]);
        d.second.v[j] = fmaf(-along, y.second.v[j], d.second.v[j]);
      }
      store_halves(to + head * dimension, half, rotate<false>(d, angles, r));
    }
  }
  if (gradients.dvalue.data == nullptr || !active) return;
  const __nv_bfloat16* from = gradients.dvalue.data + token * gradients.dvalue.token_stride + lane * 8;
  __nv_bfloat16* to = dvalue.data + token * dvalue.token_stride + lane * 8;
#pragma unroll 4
  for (int i = 0; i < 2 * heads; ++i) {
    *reinterpret_cast<uint4*>(to + i * half) = *reinterpret_cast<const uint4*>(from + i * half);
  }
}

// Calls body.operator()<Lanes>() for the smallest power of two of lanes that covers half a head.
template <typename Body>
void dispatch(int64_t dimension, Body body) {
  if (dimension <= 16) return body.template operator()<1>();
  if (dimension <= 32) return body.template operator()<2>();
  if (dimension <= 64) return body.template operator()<4>();
  if (dimension <= 128) return body.template operator()<8>();
  if (dimension <= 256) return body.template operator()<16>();
  body.template operator()<32>();
}

bool valid(const RotaryShape& shape) {
  return shape.tokens >= 0 && shape.positions > 0 && shape.heads > 0 && shape.dimension > 0 &&
         shape.dimension % 16 == 0 && shape.dimension <= 512 && shape.cos != nullptr && shape.sin != nullptr &&
         is_aligned(shape.cos, 16) && is_aligned(shape.sin, 16);
}

bool valid(const void* data, int64_t token_stride) {
  return data != nullptr && is_aligned(data, 16) && token_stride % 8 == 0;
}

unsigned blocks_for(int64_t tokens, int lanes) {
  const int64_t each = kThreads / lanes;
  return static_cast<unsigned>((tokens + each - 1) / each);
}

}  // namespace

cudaError_t qk_rotary_forward(const RotaryShape& shape, ConstHeads query, ConstHeads key, Heads query_out,
                              Heads key_out, float* inverse_rms, cudaStream_t stream) {
  if (!valid(shape)) return cudaErrorInvalidValue;
  if (shape.tokens == 0) return cudaSuccess;
  for (const ConstHeads& h : {query, key}) {
    if (!valid(h.data, h.token_stride)) return cudaErrorInvalidValue;
  }
  for (const Heads& h : {query_out, key_out}) {
    if (!valid(h.data, h.token_stride)) return cudaErrorInvalidValue;
  }
  dispatch(shape.dimension, [&]<int Lanes>() {
    forward_kernel<Lanes><<<blocks_for(shape.tokens, Lanes), kThreads, 0, stream>>>(shape, query, key, query_out,
                                                                                   key_out, inverse_rms);
  });
  return cudaGetLastError();
}

cudaError_t qk_rotary_backward(const RotaryShape& shape, const RotaryGradients& gradients, Heads dquery, Heads dkey,
                               Heads dvalue, cudaStream_t stream) {
  if (!valid(shape) || gradients.inverse_rms == nullptr) return cudaErrorInvalidValue;
  if (shape.tokens == 0) return cudaSuccess;
  for (const ConstHeads& h :
       {gradients.query_out, gradients.key_out, gradients.dquery_out, gradients.dkey_out}) {
    if (!valid(h.data, h.token_stride)) return cudaErrorInvalidValue;
  }
  for (const Heads& h : {dquery, dkey}) {
    if (!valid(h.data, h.token_stride)) return cudaErrorInvalidValue;
  }
  if (gradients.dvalue.data != nullptr && (!valid(gradients.dvalue.data, gradients.dvalue.token_stride) ||
                                           !valid(dvalue.data, dvalue.token_stride))) {
    return cudaErrorInvalidValue;
  }
  dispatch(shape.dimension, [&]<int Lanes>() {
    backward_kernel<Lanes><<<blocks_for(shape.tokens, Lanes), kThreads, 0, stream>>>(shape, gradients, dquery, dkey,
                                                                                    dvalue);
  });
  return cudaGetLastError();
}

}  // namespace gluon::cuda
