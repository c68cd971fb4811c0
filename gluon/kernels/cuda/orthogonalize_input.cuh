// Conversion of float32 matrices of any scale to half precision with a given Frobenius norm: a sum of squares in
// float64 (partial sums in a fixed order) reads 4 bytes per entry, then one multiplication per entry moves 6. Zero
// stays zero, without an epsilon; a matrix with NaN or infinite entries becomes NaN.

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/symmetric_product.h"

namespace gluon::cuda {

struct InputConversion {
  int count = 0, rows = 0, columns = 0;
  const float* input = nullptr;
  int64_t row_stride = 0, matrix_stride = 0;
  HalfStack output;
  float length = 1;
  double* partials = nullptr;  // (count, input_partials)
};

// About 16384 entries per block of 256 threads.
inline constexpr int kInputThreads = 256, kInputEntries = 16384;

inline int input_rows(const InputConversion& conversion) {
  const int rows = kInputEntries / conversion.columns;
  return rows < 1 ? 1 : rows;
}

inline int input_partials(const InputConversion& conversion) {
  const int rows = input_rows(conversion);
  return (conversion.rows + rows - 1) / rows;
}

// Calls visit(row, column) for the block's rows, for every fourth column if `vector`.
template <typename Visit>
__device__ inline void visit_rows(const InputConversion& conversion, int block_rows, bool vector, Visit visit) {
  const int first = blockIdx.x * block_rows;
  const int rows = min(block_rows, conversion.rows - first);
  const int width = vector ? 4 : 1, per_row = conversion.columns / width;
  for (int i = threadIdx.x; i < rows * per_row; i += kInputThreads) {
    const int row = i / per_row;
    visit(first + row, (i - row * per_row) * width);
  }
}

__global__ void __launch_bounds__(kInputThreads)
    sum_input_squares(InputConversion conversion, int block_rows, bool vector) {
  const float* input = conversion.input + blockIdx.y * conversion.matrix_stride;
  double sum = 0;
  visit_rows(conversion, block_rows, vector, [&](int row, int column) {
    const float* entry = input + row * conversion.row_stride + column;
    if (vector) {
      const float4 x = *reinterpret_cast<const float4*>(entry);
      sum += static_cast<double>(x.x) * x.x + static_cast<double>(x.y) * x.y;
      sum += static_cast<double>(x.z) * x.z + static_cast<double>(x.w) * x.w;
    } else {
      sum += static_cast<double>(*entry) * *entry;
    }
  });
  sum = reduce_block<kInputThreads>(sum, Add());
  if (threadIdx.x == 0) conversion.partials[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kInputThreads) scale_input(InputConversion conversion, int block_rows, bool vector) {
  double sum = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += kInputThreads) {
    sum += conversion.partials[static_cast<int64_t>(blockIdx.y) * gridDim.x + i];
  }
  sum = reduce_block<kInputThreads>(sum, Add());
  const double factor = sum == 0 ? 0 : conversion.length / sqrt(sum);
  const float* input = conversion.input + blockIdx.y * conversion.matrix_stride;
  __half* output = conversion.output.data + blockIdx.y * conversion.output.matrix_stride;
  visit_rows(conversion, block_rows, vector, [&](int row, int column) {
    const float* entry = input + row * conversion.row_stride + column;
    __half* target = output + row * conversion.output.row_stride + column;
    if (vector) {
      const float4 x = *reinterpret_cast<const float4*>(entry);
      const __half2 low = __floats2half2_rn(static_cast<float>(x.x * factor), static_cast<float>(x.y * factor));
      const __half2 high = __floats2half2_rn(static_cast<float>(x.z * factor), static_cast<float>(x.w * factor));
      *reinterpret_cast<__half2*>(target) = low;
      *reinterpret_cast<__half2*>(target + 2) = high;
    } else {
      *target = __float2half_rn(static_cast<float>(*entry * factor));
    }
  });
}

inline cudaError_t convert_input(const InputConversion& conversion, cudaStream_t stream) {
  const HalfStack& output = conversion.output;
  if (conversion.row_stride < conversion.columns || output.row_stride < conversion.columns) {
    return cudaErrorInvalidValue;
  }
  const bool vector = conversion.columns % 4 == 0 && conversion.row_stride % 4 == 0 &&
                      conversion.matrix_stride % 4 == 0 && reinterpret_cast<uintptr_t>(conversion.input) % 16 == 0 &&
                      output.row_stride % 4 == 0 && output.matrix_stride % 4 == 0 &&
                      reinterpret_cast<uintptr_t>(output.data) % 8 == 0;
  const int rows = input_rows(conversion);
  const dim3 grid(input_partials(conversion), conversion.count);
  sum_input_squares<<<grid, kInputThreads, 0, stream>>>(conversion, rows, vector);
  scale_input<<<grid, kInputThreads, 0, stream>>>(conversion, rows, vector);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
