#include "gluon/kernels/cuda/momentum.h"

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"
#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {
namespace {

// A block of 256 threads works on tiles of 4096 entries: 4 packs of 4 entries per thread, all in flight at once;
// neighbouring threads read neighbouring packs. Streaming loads (ld.cs) made the passes 7 % slower on an H200.
constexpr int kThreads = 256;
constexpr int kTile = 4096;
constexpr int64_t kTilesPerSum = 4;  // of the gradients: a block reads this many tiles

int64_t tiles_of(int64_t size) { return (size + kTile - 1) / kTile; }

template <int W> __device__ __forceinline__ int64_t place(int64_t tile, int u) {
  return tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
}

template <int W> __device__ __forceinline__ double sum_squares(const float* values, int64_t begin, int64_t end) {
  constexpr int kPacks = kTile / (kThreads * W);
  double sum = 0;
  for (int64_t tile = begin; tile < end; tile += kTile) {
    Pack<W> x[kPacks];
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (place<W>(tile, u) < end) x[u] = load<W>(values + place<W>(tile, u));
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (place<W>(tile, u) >= end) continue;
#pragma unroll
      for (int j = 0; j < W; ++j) sum = fma(static_cast<double>(x[u].v[j]), static_cast<double>(x[u].v[j]), sum);
    }
  }
  return sum;
}

// A step of a launch, which has the blocks from the previous part's `end` to its own.
struct Part {
  int64_t end, size;
  int per_matrix;  // blocks
  const float* const* gradients;
  float* momentum;
  const float* weights;
  const ScalePair* scales;
  double* squares;  // written
  __half* output;
};

struct Parts {
  Part part[kMaxMomentumSteps];
};

struct Place {
  const Part* part;
  int64_t matrix, block;  // block of that matrix
  int64_t number;         // among the part's blocks
};

__device__ __forceinline__ Place find_place(const Parts& parts, int64_t block) {
  int i = 0;
  while (block >= parts.part[i].end) ++i;
  const Part& part = parts.part[i];
  const int64_t number = block - (i == 0 ? 0 : parts.part[i - 1].end);
  return {&part, number / part.per_matrix, number % part.per_matrix, number};
}

// One block per partial sum of `tiles` consecutive tiles: of the gradients, or of the momentum if `gradients` is null.
__global__ void __launch_bounds__(kThreads)
    measure_kernel(const __grid_constant__ Parts parts, int64_t tiles, Verdict* verdict) {
  if (verdict != nullptr && blockIdx.x == 0 && threadIdx.x == 0) verdict->first_bad = kAllFinite;
  const Place place = find_place(parts, blockIdx.x);
  const Part& part = *place.part;
  const int64_t begin = place.block * tiles * kTile;
  const int64_t end = min(part.size, begin + tiles * kTile);
  const float* values =
      part.gradients == nullptr ? part.momentum + place.matrix * part.size : part.gradients[place.matrix];
  const bool wide = part.size % 4 == 0 && is_aligned(values, 16);
  const double sum = wide ? sum_squares<4>(values, begin, end) : sum_squares<1>(values, begin, end);
  const double total = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) part.squares[place.number] = total;
}

__device__ ScalePair split_factor(double bound, float length) {
  if (bound == 0) return {0, 0};
  if (!(bound < INFINITY)) return {NAN, NAN};
  const double factor = length / bound;
  if (factor == 0) return {0, 0};
  const int half = ilogb(factor) / 2;
  return {static_cast<float>(ldexp(1.0, half)), static_cast<float>(ldexp(factor, -half))};
}

// The part of a step that judge() reads and writes.
struct Judged {
  int first_matrix;  // counted through all steps
  bool nesterov;
  int gradient_partials, momentum_partials;
  const double *gradient_squares, *momentum_squares;
  const float* weights;
  ScalePair* scales;
  float length;
};

struct AllJudged {
  Judged step[kMaxMomentumSteps];
  int count;
};

__device__ double sum_of(const double* values, int count) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += values[i];
  return reduce_block<kThreads>(sum, Add());
}

__device__ void write_scale(const Judged& step, int64_t matrix, double squares) {
  const double gradient = sqrt(squares);
  const double momentum = sqrt(sum_of(step.momentum_squares + matrix * step.momentum_partials, step.momentum_partials));
  const double old_weight = step.weights[0], new_weight = step.weights[1];
  double bound = old_weight * momentum + new_weight * gradient;
  if (step.nesterov) bound = old_weight * bound + new_weight * gradient;
  // Slightly above the bound, since sums and entries are rounded.
  if (threadIdx.x == 0) step.scales[matrix] = split_factor(bound * (1 + 0x1p-20), step.length);
}

// One block per matrix; the last one to finish reports to the host.
__global__ void __launch_bounds__(kThreads)
    judge_kernel(const __grid_constant__ AllJudged all, Verdict* verdict, uint64_t* report) {
  const int number = static_cast<int>(blockIdx.x);
  int i = 0;
  while (i + 1 < all.count && number >= all.step[i + 1].first_matrix) ++i;
  const Judged& step = all.step[i];
  const int64_t matrix = number - step.first_matrix;
  const double squares = sum_of(step.gradient_squares + matrix * step.gradient_partials, step.gradient_partials);
  if (step.scales != nullptr) write_scale(step, matrix, squares);
  if (threadIdx.x != 0) return;
  if (!isfinite(squares)) atomicMin(&verdict->first_bad, number);
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
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    if (place<W>(tile, u) >= size) continue;
    g[u] = load<W>(gradient + place<W>(tile, u));
    m[u] = load<W>(momentum + place<W>(tile, u));
  }
  double sum = 0;
#pragma unroll
  for (int u = 0; u < kPacks; ++u) {
    const int64_t at = place<W>(tile, u);
    if (at >= size) continue;
    Pack<W> x;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float2 next = advance<kNesterov>(m[u].v[j], g[u].v[j], weights);
      m[u].v[j] = next.x;
      x.v[j] = next.y * scale.first * scale.second;
      sum = fma(static_cast<double>(next.x), static_cast<double>(next.x), sum);
    }
    store<W>(momentum + at, m[u]);
    if (output != nullptr) store<W>(output + at, x);
  }
  return sum;
}

// One block per tile, the last tile first: measuring leaves the end of the gradients in the L2 cache.
template <bool kNesterov>
__global__ void __launch_bounds__(kThreads)
    accumulate_kernel(const __grid_constant__ Parts parts, const Verdict* verdict) {
  if (skips_step(verdict)) return;
  const Place place = find_place(parts, static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x);
  const Part& part = *place.part;
  const int64_t tile = place.block * kTile, first = place.matrix * part.size;
  const float* gradient = part.gradients[place.matrix];
  __half* output = part.output == nullptr ? nullptr : part.output + first;
  const float2 w{part.weights[0], part.weights[1]};
  const bool wide =
      part.size % 4 == 0 && is_aligned(gradient, 16) && is_aligned(part.momentum, 16) && is_aligned(part.output, 8);
  float* kept = part.momentum + first;
  const ScalePair scale = output == nullptr ? ScalePair{0, 0} : part.scales[place.matrix];
  const double sum = wide ? accumulate_tile<kNesterov, 4>(gradient, kept, w, scale, tile, part.size, output)
                          : accumulate_tile<kNesterov, 1>(gradient, kept, w, scale, tile, part.size, output);
  if (part.squares == nullptr) return;
  const double total = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) part.squares[place.number] = total;
}

bool valid(const MomentumStep& step) {
  return step.count >= 0 && step.size >= 0 && step.gradients != nullptr && step.momentum != nullptr &&
         step.weights != nullptr;
}

bool is_empty(const MomentumStep& step) { return step.count == 0 || step.size == 0; }

// Whether one launch can take the steps. Steps without entries may have null pointers.
bool alike(const MomentumStep* steps, int step_count) {
  if (steps == nullptr || step_count < 1 || step_count > kMaxMomentumSteps) return false;
  for (int i = 0; i < step_count; ++i) {
    if (steps[i].nesterov != steps[0].nesterov || steps[i].verdict != steps[0].verdict) return false;
    if (!is_empty(steps[i]) && !valid(steps[i])) return false;
  }
  return true;
}

}  // namespace

int64_t gradient_partials(int64_t size) { return (tiles_of(size) + kTilesPerSum - 1) / kTilesPerSum; }

int64_t momentum_partials(int64_t size) { return tiles_of(size); }

cudaError_t measure_gradients(const MomentumStep* steps, int step_count, Verdict* verdict, cudaStream_t stream) {
  Parts parts{};
  int64_t blocks = 0;
  if (!alike(steps, step_count) || verdict == nullptr) return cudaErrorInvalidValue;
  for (int i = 0; i < step_count; ++i) {
    const MomentumStep& step = steps[i];
    const int64_t partials = gradient_partials(step.size);
    if (!is_empty(step) && step.gradient_squares == nullptr) return cudaErrorInvalidValue;
    parts.part[i] = {.end = blocks += step.count * partials,
                     .size = step.size,
                     .per_matrix = static_cast<int>(partials),
                     .gradients = step.gradients,
                     .squares = step.gradient_squares};
  }
  if (blocks == 0) return cudaSuccess;
  measure_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(parts, kTilesPerSum, verdict);
  return cudaGetLastError();
}

cudaError_t measure_momentum(const MomentumStep& step, cudaStream_t stream) {
  if (is_empty(step)) return cudaSuccess;
  if (!valid(step) || step.momentum_squares == nullptr) return cudaErrorInvalidValue;
  const int64_t tiles = tiles_of(step.size);
  Parts parts{};
  parts.part[0] = {.end = step.count * tiles,
                   .size = step.size,
                   .per_matrix = static_cast<int>(tiles),
                   .momentum = step.momentum,
                   .squares = step.momentum_squares};
  measure_kernel<<<static_cast<unsigned>(step.count * tiles), kThreads, 0, stream>>>(parts, 1, nullptr);
  return cudaGetLastError();
}

cudaError_t judge(const MomentumStep* steps, int step_count, Verdict* verdict, uint64_t* report, cudaStream_t stream) {
  if (verdict == nullptr || step_count < 0 || step_count > kMaxMomentumSteps) return cudaErrorInvalidValue;
  AllJudged all{};
  int64_t matrices = 0;
  for (int i = 0; i < step_count; ++i) {
    const MomentumStep& step = steps[i];
    if (is_empty(step)) continue;
    const bool complete =
        step.gradient_squares != nullptr && (step.scales == nullptr || step.momentum_squares != nullptr);
    if (!valid(step) || !complete) return cudaErrorInvalidValue;
    all.step[all.count++] = {static_cast<int>(matrices),
                             step.nesterov,
                             static_cast<int>(gradient_partials(step.size)),
                             static_cast<int>(momentum_partials(step.size)),
                             step.gradient_squares,
                             step.momentum_squares,
                             step.weights,
                             step.scales,
                             step.length};
    matrices += step.count;
  }
  if (matrices == 0) return cudaErrorInvalidValue;
  judge_kernel<<<static_cast<unsigned>(matrices), kThreads, 0, stream>>>(all, verdict, report);
  return cudaGetLastError();
}

cudaError_t accumulate_momentum(const MomentumStep* steps, int step_count, cudaStream_t stream) {
  Parts parts{};
  int64_t blocks = 0;
  if (!alike(steps, step_count)) return cudaErrorInvalidValue;
  for (int i = 0; i < step_count; ++i) {
    const MomentumStep& step = steps[i];
    const bool complete = step.output == nullptr || (step.scales != nullptr && step.momentum_squares != nullptr);
    if (!is_empty(step) && !complete) return cudaErrorInvalidValue;
    const int64_t tiles = tiles_of(step.size);
    parts.part[i] = {.end = blocks += step.count * tiles,
                     .size = step.size,
                     .per_matrix = static_cast<int>(tiles),
                     .gradients = step.gradients,
                     .momentum = step.momentum,
                     .weights = step.weights,
                     .scales = step.scales,
                     .squares = step.momentum_squares,
                     .output = step.output};
  }
  if (blocks == 0) return cudaSuccess;
  const auto kernel = steps[0].nesterov ? accumulate_kernel<true> : accumulate_kernel<false>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(parts, steps[0].verdict);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
