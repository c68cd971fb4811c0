// Conversion of float32 matrices of any scale to half precision with a given Frobenius norm: a sum of squares in
// float64 (partial sums in a fixed order) reads 4 bytes per entry, then one multiplication per entry moves 6. Zero
// stays zero, without an epsilon; a matrix with NaN or infinite entries becomes NaN.

#pragma once

#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {

struct InputConversion {
  OrthogonalizeStack stack;  // its input is converted
  HalfStack output;
  float length = 1;
  double* partials = nullptr;  // (count, input_partials)
};

// About 16384 entries per block of 256 threads.
inline constexpr int kInputThreads = 256, kInputEntries = 16384;

inline int input_rows(const InputConversion& conversion) {
  return std::max(1, kInputEntries / conversion.stack.columns);
}

inline int input_partials(const InputConversion& conversion) {
  const int rows = input_rows(conversion);
  return (conversion.stack.rows + rows - 1) / rows;
}

// Calls visit(entry, row, column) for every W-th entry of the block's rows.
template <int W, typename Visit>
__device__ inline void visit_rows(const InputConversion& conversion, int block_rows, Visit visit) {
  const OrthogonalizeStack& stack = conversion.stack;
  const float* input = static_cast<const float*>(stack.input) + blockIdx.y * stack.matrix_stride;
  const int first = blockIdx.x * block_rows;
  const int rows = min(block_rows, stack.rows - first);
  const int per_row = stack.columns / W;
  for (int i = threadIdx.x; i < rows * per_row; i += kInputThreads) {
    const int row = i / per_row, column = (i - row * per_row) * W;
    visit(input + (first + row) * stack.row_stride + column, first + row, column);
  }
}

template <int W>
__global__ void __launch_bounds__(kInputThreads) sum_input_squares(InputConversion conversion, int block_rows) {
  double sum = 0;
  visit_rows<W>(conversion, block_rows, [&](const float* entry, int, int) {
    const Pack<W> x = load<W>(entry);
    if constexpr (W == 4) {
      sum += static_cast<double>(x.v[0]) * x.v[0] + static_cast<double>(x.v[1]) * x.v[1];
      sum += static_cast<double>(x.v[2]) * x.v[2] + static_cast<double>(x.v[3]) * x.v[3];
    } else {
      sum += static_cast<double>(x.v[0]) * x.v[0];
    }
  });
  sum = reduce_block<kInputThreads>(sum, Add());
  if (threadIdx.x == 0) conversion.partials[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

template <int W>
__global__ void __launch_bounds__(kInputThreads) scale_input(InputConversion conversion, int block_rows) {
  double sum = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += kInputThreads) {
    sum += conversion.partials[static_cast<int64_t>(blockIdx.y) * gridDim.x + i];
  }
  sum = reduce_block<kInputThreads>(sum, Add());
  const double factor = sum == 0 ? 0 : conversion.length / sqrt(sum);
  __half* output = conversion.output.data + blockIdx.y * conversion.output.matrix_stride;
  visit_rows<W>(conversion, block_rows, [&](const float* entry, int row, int column) {
    Pack<W> x = load<W>(entry);
#pragma unroll
    for (int j = 0; j < W; ++j) x.v[j] = static_cast<float>(x.v[j] * factor);
    store<W>(output + row * conversion.output.row_stride + column, x);
  });
}

inline cudaError_t convert_input(const InputConversion& conversion, cudaStream_t stream) {
  const OrthogonalizeStack& stack = conversion.stack;
  const HalfStack& output = conversion.output;
  if (stack.row_stride < stack.columns || output.row_stride < stack.columns) return cudaErrorInvalidValue;
  const bool wide = stack.columns % 4 == 0 && stack.row_stride % 4 == 0 && stack.matrix_stride % 4 == 0 &&
                    is_aligned(stack.input, 16) && output.row_stride % 4 == 0 && output.matrix_stride % 4 == 0 &&
                    is_aligned(output.data, 8);
  const int rows = input_rows(conversion);
  const dim3 grid(input_partials(conversion), stack.count);
  (wide ? sum_input_squares<4> : sum_input_squares<1>)<<<grid, kInputThreads, 0, stream>>>(conversion, rows);
  (wide ? scale_input<4> : scale_input<1>)<<<grid, kInputThreads, 0, stream>>>(conversion, rows);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
