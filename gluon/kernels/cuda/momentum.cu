#include "gluon/kernels/cuda/momentum.h"

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {
namespace {

// A block of 256 threads works on tiles of 4096 entries: 4 packs of 4 entries per thread, all in flight at once;
// neighbouring threads read neighbouring packs. Streaming loads (ld.cs) made the passes 7 % slower on an H200.
constexpr int kThreads = 256;
constexpr int kTile = 4096;
constexpr int64_t kTilesPerSum = 4;  // of the gradients: a block reads this many tiles

// Sums of `tiles` tiles each over `size` entries.
__host__ __device__ int64_t partials(int64_t size, int64_t tiles) {
  return (size + tiles * kTile - 1) / (tiles * kTile);
}

template <int W> __device__ __forceinline__ double sum_squares(const float* values, int64_t begin, int64_t end) {
  constexpr int kPacks = kTile / (kThreads * W);
  double sum = 0;
  for (int64_t tile = begin; tile < end; tile += kTile) {
    Pack<W> x[kPacks];
    for_packs<kThreads, kTile, W>(tile, end, [&](int u, int64_t at) { x[u] = load<W>(values + at); });
    for_packs<kThreads, kTile, W>(tile, end, [&](int u, int64_t) {
#pragma unroll
      for (int j = 0; j < W; ++j) sum = fma(static_cast<double>(x[u].v[j]), static_cast<double>(x[u].v[j]), sum);
    });
  }
  return sum;
}

// The steps of a launch. Step i has the blocks from end[i - 1] to end[i], `per_matrix` for each of its matrices.
struct Launch {
  MomentumStep step[kMaxMomentumSteps];
  int64_t end[kMaxMomentumSteps];
  int per_matrix[kMaxMomentumSteps];
};

struct Place {
  const MomentumStep* step;
  int64_t matrix, block;  // block of that matrix
  int64_t number;         // among the step's blocks
};

__device__ __forceinline__ Place find_place(const Launch& launch, int64_t block) {
  int i = 0;
  while (block >= launch.end[i]) ++i;
  const int64_t number = block - (i == 0 ? 0 : launch.end[i - 1]);
  return {&launch.step[i], number / launch.per_matrix[i], number % launch.per_matrix[i], number};
}

// One block per partial sum: of the gradients, which also clears the verdict, or of the momentum.
__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ Launch launch, bool gradients) {
  const Place place = find_place(launch, blockIdx.x);
  const MomentumStep& step = *place.step;
  if (gradients && blockIdx.x == 0 && threadIdx.x == 0) step.verdict->first_bad = kAllFinite;
  const int64_t length = gradients ? kTilesPerSum * kTile : kTile;
  const int64_t begin = place.block * length, end = min(step.size, begin + length);
  const float* values = gradients ? step.gradients[place.matrix] : step.momentum + place.matrix * step.size;
  const bool wide = step.size % 4 == 0 && is_aligned(values, 16);
  const double sum = wide ? sum_squares<4>(values, begin, end) : sum_squares<1>(values, begin, end);
  const double total = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) (gradients ? step.gradient_squares : step.momentum_squares)[place.number] = total;
}

__device__ ScalePair split_factor(double bound, float length) {
  if (bound == 0) return {0, 0};
  if (!(bound < INFINITY)) return {NAN, NAN};
  const double factor = length / bound;
  if (factor == 0) return {0, 0};
  const int half = ilogb(factor) / 2;
  return {static_cast<float>(ldexp(1.0, half)), static_cast<float>(ldexp(factor, -half))};
}

// The sum over the partial sums of a matrix.
__device__ double sum_of(const double* values, int64_t matrix, int count) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += values[matrix * count + i];
  return reduce_block<kThreads>(sum, Add());
}

__device__ void write_scale(const MomentumStep& step, int64_t matrix, double squares) {
  const double gradient = sqrt(squares);
  const double momentum = sqrt(sum_of(step.momentum_squares, matrix, static_cast<int>(partials(step.size, 1))));
  const double old_weight = step.weights[0], new_weight = step.weights[1];
  double bound = old_weight * momentum + new_weight * gradient;
  if (step.nesterov) bound = old_weight * bound + new_weight * gradient;
  // Slightly above the bound, since sums and entries are rounded.
  if (threadIdx.x == 0) step.scales[matrix] = split_factor(bound * (1 + 0x1p-20), step.length);
}

// One block per matrix; the last one to finish reports to the host.
__global__ void __launch_bounds__(kThreads) judge_kernel(const __grid_constant__ Launch launch, uint64_t* report) {
  const Place place = find_place(launch, blockIdx.x);
  const MomentumStep& step = *place.step;
  const int count = static_cast<int>(partials(step.size, kTilesPerSum));
  const double squares = sum_of(step.gradient_squares, place.matrix, count);
  if (step.scales != nullptr) write_scale(step, place.matrix, squares);
  if (threadIdx.x != 0) return;
  Verdict* verdict = step.verdict;
  if (!isfinite(squares)) atomicMin(&verdict->first_bad, static_cast<int>(blockIdx.x));
  __threadfence();
  if (atomicAdd(&verdict->blocks, 1u) + 1 < gridDim.x) return;
  verdict->blocks = 0;
  if (report == nullptr) return;
  const unsigned judgement = ++verdict->judgements;
  const int first_bad = atomicAdd(&verdict->first_bad, 0);
  *static_cast<volatile uint64_t*>(report) = verdict_report(judgement, first_bad);
  __threadfence_system();
}

// The momentum and the LMO's input of one entry after this step.
template <bool kNesterov> __device__ __forceinline__ float2 advance(float momentum, float gradient, float2 weights) {
  const float next = fmaf(weights.x, momentum, weights.y * gradient);
  return {next, kNesterov ? fmaf(weights.x, next, weights.y * gradient) : next};
}

// Returns this thread's sum of squares of the new momentum, in the order of sum_squares().
template <bool kNesterov, int W>
__device__ __forceinline__ double accumulate_tile(const float* gradient, float* momentum, float2 weights,
                                                  ScalePair scale, int64_t tile, int64_t size, __half* output) {
  constexpr int kPacks = kTile / (kThreads * W);
  Pack<W> g[kPacks], m[kPacks];
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t at) {
    g[u] = load<W>(gradient + at);
    m[u] = load<W>(momentum + at);
  });
  double sum = 0;
  for_packs<kThreads, kTile, W>(tile, size, [&](int u, int64_t at) {
    Pack<W> x;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float2 next = advance<kNesterov>(m[u].v[j], g[u].v[j], weights);
      m[u].v[j] = next.x;
      x.v[j] = next.y * scale.first * scale.second;
      sum = fma(static_cast<double>(next.x), static_cast<double>(next.x), sum);
    }
    store<W>(momentum + at, m[u]);
    store<W>(output + at, x);
  });
  return sum;
}

// One block per tile, the last tile first: measuring leaves the end of the gradients in the L2 cache.
template <bool kNesterov>
__global__ void __launch_bounds__(kThreads) accumulate_kernel(const __grid_constant__ Launch launch) {
  if (skips_step(launch.step[0].verdict)) return;
  const Place place = find_place(launch, static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x);
  const MomentumStep& step = *place.step;
  const int64_t tile = place.block * kTile, first = place.matrix * step.size;
  const float* gradient = step.gradients[place.matrix];
  float* kept = step.momentum + first;
  __half* output = step.output + first;
  const float2 w{step.weights[0], step.weights[1]};
  const bool wide =
      step.size % 4 == 0 && is_aligned(gradient, 16) && is_aligned(step.momentum, 16) && is_aligned(step.output, 8);
  const ScalePair scale = step.scales[place.matrix];
  const double sum = wide ? accumulate_tile<kNesterov, 4>(gradient, kept, w, scale, tile, step.size, output)
                          : accumulate_tile<kNesterov, 1>(gradient, kept, w, scale, tile, step.size, output);
  const double total = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) step.momentum_squares[place.number] = total;
}

// Steps without entries may have null pointers.
bool is_valid(const MomentumStep& step) {
  return step.count == 0 || step.size == 0 ||
         (step.count > 0 && step.size > 0 &&
          are_given({step.gradients, step.momentum, step.weights, step.gradient_squares, step.momentum_squares,
                     step.verdict}));
}

// Launches a kernel on the steps, with per_matrix(size) blocks for each of their matrices.
template <typename... Arguments>
cudaError_t launch_on(std::span<const MomentumStep> steps, int64_t (*per_matrix)(int64_t),
                      void (*kernel)(Launch, Arguments...), cudaStream_t stream, Arguments... arguments) {
  if (steps.empty() || steps.size() > kMaxMomentumSteps) return cudaErrorInvalidValue;
  Launch launch{};
  int64_t blocks = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const MomentumStep& step = steps[i];
    const bool alike = step.nesterov == steps[0].nesterov && step.verdict == steps[0].verdict;
    if (!alike || !is_valid(step)) return cudaErrorInvalidValue;
    launch.step[i] = step;
    launch.per_matrix[i] = static_cast<int>(per_matrix(step.size));
    launch.end[i] = blocks += step.count * launch.per_matrix[i];
  }
  if (blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(launch, arguments...);
  return cudaGetLastError();
}

}  // namespace

int64_t gradient_partials(int64_t size) { return partials(size, kTilesPerSum); }

int64_t momentum_partials(int64_t size) { return partials(size, 1); }

cudaError_t measure_gradients(std::span<const MomentumStep> steps, cudaStream_t stream) {
  return launch_on(steps, gradient_partials, measure_kernel, stream, true);
}

cudaError_t measure_momentum(const MomentumStep& step, cudaStream_t stream) {
  return launch_on({&step, 1}, momentum_partials, measure_kernel, stream, false);
}

cudaError_t judge(std::span<const MomentumStep> steps, uint64_t* report, cudaStream_t stream) {
  return launch_on(
      steps, [](int64_t size) { return int64_t{size > 0}; }, judge_kernel, stream, report);
}

cudaError_t accumulate_momentum(std::span<const MomentumStep> steps, cudaStream_t stream) {
  for (const MomentumStep& step : steps) {
    if (step.count > 0 && !are_given({step.scales, step.output})) return cudaErrorInvalidValue;
  }
  const bool nesterov = !steps.empty() && steps[0].nesterov;
  return launch_on(steps, momentum_partials, nesterov ? accumulate_kernel<true> : accumulate_kernel<false>, stream);
}

}  // namespace gluon::cuda
