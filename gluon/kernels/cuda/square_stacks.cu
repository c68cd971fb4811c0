#include "gluon/kernels/cuda/square_stacks.h"

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {
namespace {

// A block of 256 threads works on whole rows, about 16384 entries, in packs of 8.
constexpr int kThreads = 256, kEntries = 16384, kWidth = 8;

__host__ __device__ int rows_per_block(int row_stride) { return row_stride < kEntries ? kEntries / row_stride : 1; }

// The stacks of a launch. Stack i has the blocks from end[i - 1] to end[i], `per_matrix` for each of its matrices.
struct Launch {
  SquareStack stack[kMaxSquareStacks];
  int64_t end[kMaxSquareStacks];
  int per_matrix[kMaxSquareStacks];
};

struct Place {
  const SquareStack* stack;
  int64_t matrix;
  int block, per_matrix;  // block of that matrix
};

__device__ Place find_place(const Launch& launch) {
  const int64_t block = blockIdx.x;
  int i = 0;
  while (block >= launch.end[i]) ++i;
  const int64_t number = block - (i == 0 ? 0 : launch.end[i - 1]);
  const int per_matrix = launch.per_matrix[i];
  return {&launch.stack[i], number / per_matrix, static_cast<int>(number % per_matrix), per_matrix};
}

// Calls visit(pack, row, column) for the packs of the block's rows; the last pack of a row may reach beyond the side.
template <typename Visit> __device__ void visit_rows(const Place& place, Visit visit) {
  const auto [data, count, side, row_stride, sums] = *place.stack;
  const int first = place.block * rows_per_block(row_stride);
  const int rows = min(rows_per_block(row_stride), side - first);
  __half* entries = data + (place.matrix * side + first) * row_stride;
  const int per_row = (side + kWidth - 1) / kWidth;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < rows * per_row; i += kThreads) {
    const int row = i / per_row, column = (i - row * per_row) * kWidth;
    visit(entries + static_cast<int64_t>(row) * row_stride + column, first + row, column);
  }
}

__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ Launch launch) {
  const Place place = find_place(launch);
  const int side = place.stack->side;
  float sum = 0;
  visit_rows(place, [&](const __half* entries, int, int column) {
    const Pack<kWidth> pack = load<kWidth>(entries);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += column + j < side ? pack.v[j] * pack.v[j] : 0;
  });
  sum = reduce_block<kThreads>(sum, Add());
  if (threadIdx.x == 0) place.stack->sums[place.matrix * place.per_matrix + place.block] = sum;
}

__device__ float power_of(float base, int exponent) {
  float result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

// NaN stays NaN.
__device__ float in_half_range(float x) {
  constexpr float kMost = 65504;
  return x > kMost ? kMost : x < -kMost ? -kMost : x;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __grid_constant__ Launch launch, const SquareScale scale) {
  const Place place = find_place(launch);
  const float* sums = place.stack->sums + place.matrix * place.per_matrix;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < place.per_matrix; i += kThreads) sum += sums[i];
  sum = reduce_block<kThreads>(sum, Add());
  const auto s = static_cast<float>(sum == 0 ? 0 : 1 / (scale.safety * sqrt(sqrt(sum))));
  const float factor = power_of(s, scale.power), identity = power_of(s, scale.identity_power) * scale.identity;
  visit_rows(place, [&](__half* entries, int row, int column) {
    Pack<kWidth> pack = load<kWidth>(entries);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      pack.v[j] = in_half_range(fmaf(factor, pack.v[j], column + j == row ? identity : 0));
    }
    store<kWidth>(entries, pack);
  });
}

// A thread for each row of each matrix.
__global__ void __launch_bounds__(kThreads) identity_kernel(const __grid_constant__ Launch launch, float identity) {
  const Place place = find_place(launch);
  const auto [data, count, side, row_stride, sums] = *place.stack;
  const int row = place.block * kThreads + static_cast<int>(threadIdx.x);
  if (row >= side) return;
  __half* entry = data + (place.matrix * side + row) * row_stride + row;
  *entry = __float2half_rn(__half2float(*entry) + identity);
}

bool is_valid(const SquareStack& stack) {
  return are_given({stack.data}, 2 * kWidth) && stack.count > 0 && stack.side > 0 && stack.row_stride >= stack.side &&
         stack.row_stride % kWidth == 0;
}

// Launches a kernel on the stacks, with per_matrix(stack) blocks for each of their matrices.
template <typename PerMatrix, typename... Arguments>
cudaError_t launch_on(std::span<const SquareStack> stacks, PerMatrix per_matrix, void (*kernel)(Launch, Arguments...),
                      cudaStream_t stream, Arguments... arguments) {
  if (stacks.empty() || stacks.size() > kMaxSquareStacks) return cudaErrorInvalidValue;
  Launch launch{};
  int64_t blocks = 0;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (!is_valid(stacks[i])) return cudaErrorInvalidValue;
    launch.stack[i] = stacks[i];
    launch.per_matrix[i] = per_matrix(stacks[i]);
    launch.end[i] = blocks += int64_t{stacks[i].count} * launch.per_matrix[i];
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(launch, arguments...);
  return cudaGetLastError();
}

int partials_of(const SquareStack& stack) { return square_partials(stack.side, stack.row_stride); }

bool have_sums(std::span<const SquareStack> stacks) {
  return std::all_of(stacks.begin(), stacks.end(), [](const SquareStack& stack) { return are_given({stack.sums}); });
}

}  // namespace

int square_partials(int side, int row_stride) {
  const int rows = rows_per_block(row_stride);
  return (side + rows - 1) / rows;
}

cudaError_t measure_squares(std::span<const SquareStack> stacks, cudaStream_t stream) {
  return have_sums(stacks) ? launch_on(stacks, partials_of, measure_kernel, stream) : cudaErrorInvalidValue;
}

cudaError_t scale_squares(std::span<const SquareStack> stacks, const SquareScale& scale, cudaStream_t stream) {
  return have_sums(stacks) ? launch_on(stacks, partials_of, scale_kernel, stream, scale) : cudaErrorInvalidValue;
}

cudaError_t add_identity(std::span<const SquareStack> stacks, float identity, cudaStream_t stream) {
  const auto blocks = [](const SquareStack& stack) { return (stack.side + kThreads - 1) / kThreads; };
  return launch_on(stacks, blocks, identity_kernel, stream, identity);
}

}  // namespace gluon::cuda
