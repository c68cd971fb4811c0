#include "gluon/kernels/cuda/momentum.h"

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {
namespace {

// A block of 256 threads works on tiles of 4096 entries: 4 packs of 4 entries a thread, all in flight together,
// neighbouring threads on neighbouring packs. Reads marked as streaming (ld.cs) made both passes 7 % slower on the
// H200; one launch that normalises a matrix while its momentum is in the L2 cache was no faster than two (121 us each
// for 48 x 768 x 768).
constexpr int kThreads = 256;
constexpr int kTile = 4096;
constexpr int64_t kMostPartials = kThreads;  // each block of the second pass reads them all, one a thread

int64_t tiles_of(int64_t size) { return (size + kTile - 1) / kTile; }
int64_t tiles_per_partial(int64_t size) { return (tiles_of(size) + kMostPartials - 1) / kMostPartials; }

// The LMO's input from the momentum after its update.
template <MomentumInput Input>
__device__ float lmo_input(float momentum, float gradient, float old_weight, float new_weight) {
  if constexpr (Input == MomentumInput::kGradient) return gradient;
  if constexpr (Input == MomentumInput::kMomentum) return momentum;
  return fmaf(old_weight, momentum, new_weight * gradient);
}

template <MomentumInput Input, int W, typename G>
__device__ __forceinline__ double accumulate(const G* gradient, float* momentum, float2 weights,
                                             int64_t begin, int64_t end) {
  constexpr int kPacks = kTile / (kThreads * W);
  constexpr bool kKeeps = Input != MomentumInput::kGradient;
  double sum = 0;
  for (int64_t tile = begin; tile < end; tile += kTile) {
    Pack<W> g[kPacks], m[kPacks];
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
      if (at >= end) continue;
      g[u] = load<W>(gradient + at);
      if constexpr (kKeeps) m[u] = load<W>(momentum + at);
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
      if (at >= end) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) {
        if constexpr (kKeeps) m[u].v[j] = fmaf(weights.x, m[u].v[j], weights.y * g[u].v[j]);
        const double x = lmo_input<Input>(kKeeps ? m[u].v[j] : 0.0F, g[u].v[j], weights.x, weights.y);
        sum = fma(x, x, sum);
      }
      if constexpr (kKeeps) store<W>(momentum + at, m[u]);
    }
  }
  return sum;
}

// One block per partial sum: block b of matrix i takes `tiles` neighbouring tiles. 12 bytes an entry, float32; H200:
// 24 x 3072 x 768 in 161 us, 100 % of a copy of the same bytes at 4.2 TB/s, 48 x 768 x 768 in 87 us, 93 %.
template <MomentumInput Input, typename G>
__global__ void __launch_bounds__(kThreads)
    accumulate_kernel(const void* const* gradients, float* momentum, const float* weights, int64_t size,
                      int partials, int64_t tiles, double* sums) {
  const int64_t matrix = blockIdx.x / partials;
  const int64_t begin = blockIdx.x % partials * tiles * kTile;
  const int64_t end = min(size, begin + tiles * kTile);
  const G* gradient = static_cast<const G*>(gradients[matrix]);
  float* kept = momentum + matrix * size;
  float2 w{0, 1};
  if constexpr (Input != MomentumInput::kGradient) w = {weights[0], weights[1]};
  const bool wide = size % 4 == 0 && is_aligned(gradient, 4 * sizeof(G)) && is_aligned(momentum, 16);
  const double sum = wide ? accumulate<Input, 4, G>(gradient, kept, w, begin, end)
                          : accumulate<Input, 1, G>(gradient, kept, w, begin, end);
  const double total = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Two factors whose product is `factor`, an extreme one too: x * first stays finite and normal wherever the result
// matters.
struct Factors {
  float first, second;
};

__device__ Factors split_factor(double sum_of_squares, float length) {
  if (sum_of_squares == 0) return {0, 0};
  if (!(sum_of_squares < INFINITY)) return {NAN, NAN};
  const double factor = length / sqrt(sum_of_squares);
  if (factor == 0) return {0, 0};
  const int half = ilogb(factor) / 2;
  return {static_cast<float>(ldexp(1.0, half)), static_cast<float>(ldexp(factor, -half))};
}

template <MomentumInput Input, int W, typename G, typename T>
__device__ __forceinline__ void write_tile(const G* gradient, const float* momentum, float2 weights,
                                           const double* sums, int partials, float length, int64_t tile,
                                           int64_t size, T* output, float* norm) {
  constexpr int kPacks = kTile / (kThreads * W);
  __shared__ Factors shared;
  Pack<W> x[kPacks];
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
    if (at >= size) continue;
    Pack<W> g{}, m{};
    if constexpr (Input != MomentumInput::kMomentum) g = load<W>(gradient + at);
    if constexpr (Input != MomentumInput::kGradient) m = load<W>(momentum + at);
#pragma unroll
    for (int j = 0; j < W; ++j) x[u].v[j] = lmo_input<Input>(m.v[j], g.v[j], weights.x, weights.y);
  }
  // The tile is on its way while the partial sums are added.
  const int lane = static_cast<int>(threadIdx.x);
  const double total = reduce_block<kThreads>(lane < partials ? sums[lane] : 0.0, Add());
  if (lane == 0) {
    shared = split_factor(total, length);
    if (norm != nullptr && tile == 0) *norm = static_cast<float>(sqrt(total));
  }
  __syncthreads();
  const Factors factors = shared;
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
    if (at >= size) continue;
#pragma unroll
    for (int j = 0; j < W; ++j) x[u].v[j] = x[u].v[j] * factors.first * factors.second;
    store<W>(output + at, x[u]);
  }
}

// One block per tile, last tile first: the first pass left the end of the momentum in the L2 cache. 4 bytes read and
// 2 written an entry in half precision; H200: 24 x 3072 x 768 in 79 us, 103 % of the copy bound, 48 x 768 x 768 in
// 42 us, 95 %; both passes together 242 and 121 us, 100 %.
template <MomentumInput Input, typename G, typename T>
__global__ void __launch_bounds__(kThreads)
    write_kernel(const void* const* gradients, const float* momentum, const float* weights, int64_t size,
                 int64_t tiles, const double* sums, int partials, float length, T* output, float* norms) {
  const int64_t block = static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x;
  const int64_t matrix = block / tiles;
  const int64_t tile = block % tiles * kTile;
  const G* gradient = nullptr;
  if constexpr (Input != MomentumInput::kMomentum) gradient = static_cast<const G*>(gradients[matrix]);
  float2 w{0, 1};
  if constexpr (Input == MomentumInput::kNesterov) w = {weights[0], weights[1]};
  const bool wide = size % 4 == 0 && is_aligned(gradient, 4 * sizeof(G)) && is_aligned(momentum, 16) &&
                    is_aligned(output, 4 * sizeof(T));
  float* norm = norms == nullptr ? nullptr : norms + matrix;
  const float* kept = momentum + matrix * size;
  const double* squares = sums + matrix * partials;
  T* target = output + matrix * size;
  if (wide) {
    write_tile<Input, 4, G, T>(gradient, kept, w, squares, partials, length, tile, size, target, norm);
  } else {
    write_tile<Input, 1, G, T>(gradient, kept, w, squares, partials, length, tile, size, target, norm);
  }
}

bool valid(const MomentumStep& step) {
  if (step.count < 0 || step.size < 0) return false;
  if (step.gradient_type == ElementType::kFloat16) return false;
  if (step.gradients == nullptr || step.partials == nullptr) return false;
  return step.input == MomentumInput::kGradient || (step.momentum != nullptr && step.weights != nullptr);
}

// Calls body.operator()<Input, G>() for the step's input and gradient type.
template <typename Body>
void dispatch(const MomentumStep& step, Body body) {
  const auto typed = [&]<MomentumInput Input>() {
    step.gradient_type == ElementType::kFloat32 ? body.template operator()<Input, float>()
                                                : body.template operator()<Input, __nv_bfloat16>();
  };
  switch (step.input) {
    case MomentumInput::kGradient:
      return typed.template operator()<MomentumInput::kGradient>();
    case MomentumInput::kMomentum:
      return typed.template operator()<MomentumInput::kMomentum>();
    case MomentumInput::kNesterov:
      return typed.template operator()<MomentumInput::kNesterov>();
  }
}

// The same with an output type.
template <typename Body>
void dispatch(const MomentumStep& step, ElementType output_type, Body body) {
  dispatch(step, [&]<MomentumInput Input, typename G>() {
    switch (output_type) {
      case ElementType::kFloat32:
        return body.template operator()<Input, G, float>();
      case ElementType::kFloat16:
        return body.template operator()<Input, G, __half>();
      case ElementType::kBFloat16:
        return body.template operator()<Input, G, __nv_bfloat16>();
    }
  });
}

}  // namespace

int64_t momentum_partials(int64_t size) {
  const int64_t each = tiles_per_partial(size);
  return each == 0 ? 0 : (tiles_of(size) + each - 1) / each;
}

cudaError_t accumulate_momentum(const MomentumStep& step, cudaStream_t stream) {
  if (step.count == 0 || step.size == 0) return cudaSuccess;
  if (!valid(step)) return cudaErrorInvalidValue;
  const int64_t partials = momentum_partials(step.size);
  dispatch(step, [&]<MomentumInput Input, typename G>() {
    accumulate_kernel<Input, G><<<static_cast<unsigned>(step.count * partials), kThreads, 0, stream>>>(
        step.gradients, step.momentum, step.weights, step.size, static_cast<int>(partials),
        tiles_per_partial(step.size), step.partials);
  });
  return cudaGetLastError();
}

cudaError_t write_normalized_input(const MomentumStep& step, void* output, ElementType output_type,
                                   float length, float* norms, cudaStream_t stream) {
  if (step.count == 0 || step.size == 0) return cudaSuccess;
  if (!valid(step) || output == nullptr) return cudaErrorInvalidValue;
  const int64_t tiles = tiles_of(step.size);
  dispatch(step, output_type, [&]<MomentumInput Input, typename G, typename T>() {
    write_kernel<Input, G, T><<<static_cast<unsigned>(step.count * tiles), kThreads, 0, stream>>>(
        step.gradients, step.momentum, step.weights, step.size, tiles, step.partials,
        static_cast<int>(momentum_partials(step.size)), length, static_cast<T*>(output), norms);
  });
  return cudaGetLastError();
}

}  // namespace gluon::cuda
