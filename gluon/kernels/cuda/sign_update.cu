#include "gluon/kernels/cuda/sign_update.h"

#include "gluon/kernels/cuda/vector_io.cuh"
#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {
namespace {

// One block per tile of 2048 entries: 2 packs of 4 entries per thread from each of three arrays, so 6 reads of 16 bytes
// are in flight; neighbouring threads read neighbouring packs. 20 bytes per entry; H200: 50304 x 768 in 204 us, 90 % of
// the copy bound of 4.2 TB/s. Tiles of 1024 and 4096: 200 and 204 us.
constexpr int kThreads = 256;
constexpr int kTile = 2048;

struct Weights {
  float old_momentum, gradient, keep, move;
};

__device__ float sign(float x) { return static_cast<float>((x > 0) - (x < 0)); }

template <bool kNesterov, int W>
__device__ __forceinline__ void move_tile(const float* gradient, float* momentum, float* parameter, Weights w,
                                          int64_t tile, int64_t size) {
  constexpr int kPacks = kTile / (kThreads * W);
  Pack<W> g[kPacks], m[kPacks], x[kPacks];
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
    if (at >= size) continue;
    g[u] = load<W>(gradient + at);
    m[u] = load<W>(momentum + at);
    x[u] = load<W>(parameter + at);
  }
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
    if (at >= size) continue;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      m[u].v[j] = fmaf(w.old_momentum, m[u].v[j], w.gradient * g[u].v[j]);
      const float input = kNesterov ? fmaf(w.old_momentum, m[u].v[j], w.gradient * g[u].v[j]) : m[u].v[j];
      x[u].v[j] = fmaf(w.move, sign(input), w.keep * x[u].v[j]);
    }
    store<W>(momentum + at, m[u]);
    store<W>(parameter + at, x[u]);
  }
}

template <bool kNesterov>
__global__ void __launch_bounds__(kThreads)
    sign_kernel(const float* const* gradients, float* momentum, const float* weights, float* const* parameters,
                const float* radii, float direction_factor, float decay, int64_t size, int64_t tiles,
                const Verdict* verdict) {
  if (skips_step(verdict)) return;
  const int64_t matrix = blockIdx.x / tiles;
  const int64_t tile = blockIdx.x % tiles * kTile;
  const float* gradient = gradients[matrix];
  float* parameter = parameters[matrix];
  const float radius = radii[matrix];
  const Weights w{weights[0], weights[1], 1 - decay * radius, direction_factor * radius};
  const bool wide = size % 4 == 0 && is_aligned(gradient, 16) && is_aligned(momentum, 16) && is_aligned(parameter, 16);
  float* kept = momentum + matrix * size;
  if (wide) {
    move_tile<kNesterov, 4>(gradient, kept, parameter, w, tile, size);
  } else {
    move_tile<kNesterov, 1>(gradient, kept, parameter, w, tile, size);
  }
}

}  // namespace

cudaError_t update_by_sign(const SignUpdate& update, cudaStream_t stream) {
  if (update.count == 0 || update.size == 0) return cudaSuccess;
  if (update.count < 0 || update.size < 0 || update.gradients == nullptr || update.momentum == nullptr ||
      update.weights == nullptr || update.parameters == nullptr || update.radii == nullptr) {
    return cudaErrorInvalidValue;
  }
  const int64_t tiles = (update.size + kTile - 1) / kTile;
  const auto kernel = update.nesterov ? sign_kernel<true> : sign_kernel<false>;
  kernel<<<static_cast<unsigned>(update.count * tiles), kThreads, 0, stream>>>(
      update.gradients, update.momentum, update.weights, update.parameters, update.radii, update.direction_factor,
      update.decay, update.size, tiles, update.verdict);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
