#include "gluon/kernels/cuda/step_factors.h"

#include <type_traits>

#include "gluon/kernels/cuda/directions.cuh"
#include "gluon/kernels/cuda/reduce.cuh"

namespace gluon::cuda {
namespace {

constexpr int kThreads = 256, kTile = 4096, kWarps = kThreads / 32;

int64_t pieces_of(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// The next step would end this near to the centre of the sphere, relative to the lengths of X and its step, that the
// direction of what is left would be rounding (update/sphere_step.h).
constexpr double kCentre = 1e-4;

// v of one row or entry from its mean square.
__device__ __forceinline__ float folded(float v, double square, const SecondMoments& second) {
  return second.beta * v + (1 - second.beta) * static_cast<float>(square / (second.unit * second.unit));
}

// A block writes its part of |D|^2 and |H|^2.
__device__ __forceinline__ void write_lengths(double direction, double heading, double* sums) {
  const double first = reduce_block<kThreads>(direction, Add()), second = reduce_block<kThreads>(heading, Add());
  if (threadIdx.x != 0) return;
  sums[2 * blockIdx.x] = first;
  sums[2 * blockIdx.x + 1] = second;
}

template <int W> __device__ __forceinline__ double row_squares(const __half* row, int64_t columns) {
  double sum = 0;
  for (int64_t at = threadIdx.x % 32 * W; at < columns; at += 32 * W) {
    const Pack<W> d = load<W>(row + at);
#pragma unroll
    for (int j = 0; j < W; ++j) sum = fma(static_cast<double>(d.v[j]), static_cast<double>(d.v[j]), sum);
  }
  return reduce_lanes<32>(sum, Add());
}

// A warp per row; `blocks` of them for each matrix.
__global__ void __launch_bounds__(kThreads)
    fold_rows_kernel(const __half* directions, SecondMoments second, int64_t rows, int64_t blocks, double* sums,
                     const Verdict* verdict) {
  if (skips_step(verdict)) return;
  const int64_t matrix = blockIdx.x / blocks, row = blockIdx.x % blocks * kWarps + threadIdx.x / 32;
  double direction = 0, heading = 0;
  if (row < rows) {  // the same in all lanes of a warp
    const __half* entries = directions + (matrix * rows + row) * second.columns;
    const bool wide = second.columns % 4 == 0 && is_aligned(directions, 8);
    const double square = wide ? row_squares<4>(entries, second.columns) : row_squares<1>(entries, second.columns);
    if (threadIdx.x % 32 == 0) {
      float& v = second.values[matrix * rows + row];
      v = folded(v, square / static_cast<double>(second.columns), second);
      const double factor = inverse_root(v, second.eps);
      direction = square;
      heading = square * factor * factor;
    }
  }
  write_lengths(direction, heading, sums);
}

template <int W>
__device__ __forceinline__ double2 fold_tile(const __half* directions, float* moments, const SecondMoments& second,
                                             int64_t tile, int64_t size) {
  constexpr int kPacks = kTile / (kThreads * W);
  Pack<W> d[kPacks], v[kPacks];
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t at) {
    d[u] = load<W>(directions + at);
    v[u] = load<W>(moments + at);
  });
  double2 sum{0, 0};
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t at) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const double square = static_cast<double>(d[u].v[j]) * d[u].v[j];
      v[u].v[j] = folded(v[u].v[j], square, second);
      const double factor = inverse_root(v[u].v[j], second.eps);
      sum.x += square;
      sum.y += square * factor * factor;
    }
    store<W>(moments + at, v[u]);
  });
  return sum;
}

// A block per tile.
__global__ void __launch_bounds__(kThreads)
    fold_entries_kernel(const __half* directions, SecondMoments second, int64_t size, int64_t tiles, double* sums,
                        const Verdict* verdict) {
  if (skips_step(verdict)) return;
  const int64_t matrix = blockIdx.x / tiles, tile = blockIdx.x % tiles * kTile;
  const __half* entries = directions + matrix * size;
  float* moments = second.values + matrix * size;
  const bool wide = size % 4 == 0 && is_aligned(directions, 8) && is_aligned(second.values, 16);
  const double2 sum =
      wide ? fold_tile<4>(entries, moments, second, tile, size) : fold_tile<1>(entries, moments, second, tile, size);
  write_lengths(sum.x, sum.y, sums);
}

struct SphereSums {
  double xx = 0, xh = 0, hh = 0;
};

template <int W, MomentKind kKind>
__device__ __forceinline__ SphereSums measure_tile(const float* parameter, const Directions<kKind>& directions,
                                                   int64_t tile, int64_t size) {
  constexpr int kPacks = kTile / (kThreads * W);
  Pack<W> x[kPacks], h[kPacks];
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t at) {
    x[u] = load<W>(parameter + at);
    h[u] = directions.template load<W>(at);
  });
  SphereSums sums;
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const double a = x[u].v[j], b = h[u].v[j];
      sums.xx = fma(a, a, sums.xx);
      sums.xh = fma(a, b, sums.xh);
      sums.hh = fma(b, b, sums.hh);
    }
  });
  return sums;
}

// A block per tile.
template <MomentKind kKind>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(ParameterUpdate update, const __half* directions, int64_t size, int64_t tiles, double* sums,
                   const Verdict* verdict) {
  if (skips_step(verdict)) return;
  const int64_t matrix = blockIdx.x / tiles, tile = blockIdx.x % tiles * kTile;
  const float* parameter = update.parameters[matrix];
  const Directions<kKind> headings(directions, update.second, matrix, size);
  const SphereSums own = headings.wide(size) && is_aligned(parameter, 16)
                             ? measure_tile<4>(parameter, headings, tile, size)
                             : measure_tile<1>(parameter, headings, tile, size);
  const double xx = reduce_block<kThreads>(own.xx, Add()), xh = reduce_block<kThreads>(own.xh, Add());
  const double hh = reduce_block<kThreads>(own.hh, Add());
  if (threadIdx.x != 0) return;
  double* mine = sums + 3 * static_cast<int64_t>(blockIdx.x);
  mine[0] = xx, mine[1] = xh, mine[2] = hh;
}

// Sum number `which` of `kinds` over the partial sums of a matrix.
__device__ double total(const double* sums, int64_t partials, int kinds, int which) {
  const double* first = sums + static_cast<int64_t>(blockIdx.x) * partials * kinds + which;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < partials; i += kThreads) sum += first[i * kinds];
  return reduce_block<kThreads>(sum, Add());
}

struct Partials {
  int64_t directions, spheres;
};

// On the sphere of radius R, with U = factor H.
__device__ StepFactors sphere_factors(const SphereSums& sums, double factor, double eta, double radius) {
  const double length = sqrt(sums.xx), reach = fabs(factor) * sqrt(sums.hh), unit = length > 0 ? 1 : 0;
  const double a = length * reach == 0 ? 0 : factor * sums.xh / (length * reach);
  const double q = sqrt(fmax(unit + 2 * a * eta + eta * eta, 0.0));
  if (!(reach > 0 && eta > 0 && q > kCentre * (unit + eta))) return {1, 0};
  return {length == 0 ? 1 : static_cast<float>(radius / (length * q)),
          static_cast<float>(factor * radius * eta / (reach * q))};
}

// A block per matrix.
__global__ void __launch_bounds__(kThreads)
    factors_kernel(ParameterUpdate update, StepSums sums, Partials partials, double radius, StepFactors* factors,
                   const Verdict* verdict) {
  if (skips_step(verdict)) return;
  double factor = update.direction_factor;
  if (sums.directions != nullptr) {
    const double direction = total(sums.directions, partials.directions, 2, 0);
    const double heading = total(sums.directions, partials.directions, 2, 1);
    factor = heading == 0 ? 0 : factor * sqrt(direction / heading);
  }
  SphereSums sphere;
  if (sums.spheres != nullptr) {
    sphere.xx = total(sums.spheres, partials.spheres, 3, 0);
    sphere.xh = total(sums.spheres, partials.spheres, 3, 1);
    sphere.hh = total(sums.spheres, partials.spheres, 3, 2);
  }
  if (threadIdx.x != 0) return;
  const float t = update.radii[blockIdx.x];
  if (sums.spheres != nullptr) {
    factors[blockIdx.x] = sphere_factors(sphere, factor, t, radius);
  } else {
    factors[blockIdx.x] = {1 - (update.decay == nullptr ? 0 : *update.decay) * t, static_cast<float>(factor * t)};
  }
}

bool is_empty(const MomentumStep& step) { return step.count == 0 || step.size == 0; }

bool is_valid(const MomentumStep& step, const SecondMoments& second) {
  return step.count > 0 && step.size > 0 && are_valid(second, step.size);
}

}  // namespace

int64_t direction_partials(const SecondMoments& second, int64_t size) {
  if (second.kind == MomentKind::kNone) return 0;
  return second.kind == MomentKind::kRows ? pieces_of(size / second.columns, kWarps) : pieces_of(size, kTile);
}

int64_t sphere_partials(int64_t size) { return pieces_of(size, kTile); }

cudaError_t fold_directions(const MomentumStep& step, const __half* directions, const SecondMoments& second,
                            double* sums, cudaStream_t stream) {
  if (is_empty(step)) return cudaSuccess;
  if (!is_valid(step, second) || second.kind == MomentKind::kNone || !are_given({directions, sums})) {
    return cudaErrorInvalidValue;
  }
  const int64_t partials = direction_partials(second, step.size);
  const auto blocks = static_cast<unsigned>(step.count * partials);
  if (second.kind == MomentKind::kRows) {
    fold_rows_kernel<<<blocks, kThreads, 0, stream>>>(directions, second, step.size / second.columns, partials, sums,
                                                      step.verdict);
  } else {
    fold_entries_kernel<<<blocks, kThreads, 0, stream>>>(directions, second, step.size, partials, sums, step.verdict);
  }
  return cudaGetLastError();
}

cudaError_t measure_spheres(const MomentumStep& step, const __half* directions, const ParameterUpdate& update,
                            double* sums, cudaStream_t stream) {
  if (is_empty(step)) return cudaSuccess;
  if (!is_valid(step, update.second) || !are_given({directions, update.parameters, sums})) {
    return cudaErrorInvalidValue;
  }
  const int64_t tiles = sphere_partials(step.size);
  for_kind(update.second.kind, [&](auto kind) {
    measure_kernel<kind.value><<<static_cast<unsigned>(step.count * tiles), kThreads, 0, stream>>>(
        update, directions, step.size, tiles, sums, step.verdict);
  });
  return cudaGetLastError();
}

cudaError_t make_factors(const MomentumStep& step, const ParameterUpdate& update, const StepSums& sums, double radius,
                         StepFactors* factors, cudaStream_t stream) {
  if (is_empty(step)) return cudaSuccess;
  const bool has_sums = (sums.directions != nullptr) == (update.second.kind != MomentKind::kNone);
  if (!is_valid(step, update.second) || !has_sums || !are_given({update.radii, factors}) ||
      (sums.spheres != nullptr && !(radius > 0))) {
    return cudaErrorInvalidValue;
  }
  const Partials partials{direction_partials(update.second, step.size), sphere_partials(step.size)};
  factors_kernel<<<static_cast<unsigned>(step.count), kThreads, 0, stream>>>(update, sums, partials, radius, factors,
                                                                             step.verdict);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
