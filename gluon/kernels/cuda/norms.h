// Batched norms and dual norms of matrices, and inner products of matrices, one value per matrix.
//
//   name         |x|                    |x|*
//   max_entry    max |x_ij|             sum |x_ij|
//   euclidean    Frobenius              Frobenius
//   rows         max l2 of a row        sum of the rows' l2
//   columns      max l2 of a column     sum of the columns' l2
//
// of x (b, m, n) float32, or of x - y without storing the difference (what a smoothness sample needs). Every entry is
// read once, 4 bytes, 8 with y; both values come from one pass. Sums are float64 in a fixed order, so that entries of
// 1e-30 and 1e30 work and two runs give the same bits; NaN stays NaN. inner_products() gives the spectral norm's dual:
// |g|* = <g, polar(g)>. In the flow: radius and smoothness sample. (paper: section "Special cases of the LMO framework")

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gluon/kernels/cuda/element_type.h"

namespace gluon::cuda {

enum class MatrixNorm { kMaxEntry, kEuclidean, kRows, kColumns };

/// Pointers are to device memory.
struct NormBatch {
  int64_t count = 0, rows = 0, columns = 0;  // b, m, n
  const float* x = nullptr;                  // (b, m, n)
  const float* y = nullptr;                  // (b, m, n), subtracted; may be null
  float* norms = nullptr;                    // (b); may be null
  float* dual_norms = nullptr;               // (b); may be null
  void* workspace = nullptr;                 // norm_workspace() bytes, 16-byte aligned
};

/// Bytes of scratch for a batch (count, rows, columns).
size_t norm_workspace(MatrixNorm norm, int64_t count, int64_t rows, int64_t columns);

/// Writes norms and dual norms. A matrix without entries has norm zero. cudaErrorInvalidValue for missing pointers and
/// negative sizes.
cudaError_t matrix_norms(MatrixNorm norm, const NormBatch& batch, cudaStream_t stream);

/// Bytes of scratch for inner_products().
size_t inner_product_workspace(int64_t count, int64_t size);

/// products_i = factor <x_i, y_i> for x (count, size) float32 and y (count, size) in `type`.
cudaError_t inner_products(const float* x, const void* y, ElementType type, int64_t count, int64_t size,
                           float factor, float* products, void* workspace, cudaStream_t stream);

}  // namespace gluon::cuda
