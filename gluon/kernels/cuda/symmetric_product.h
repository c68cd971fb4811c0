// Batched half precision products on Hopper's tensor cores, for iterations on symmetric matrices.
//
//   kRowGram      C (m, m) = alpha A A^T        A (m, n)
//   kColumnGram   C (n, n) = alpha A^T A        A (m, n)
//   kSymmetric    C (m, m) = alpha A B          A, B (m, m) symmetric and commuting: polynomials of one matrix
//   kLeft         C (m, n) = alpha A B          A (m, m), B (m, n)
//   kRight        C (m, n) = alpha A B          A (m, n), B (n, n) symmetric
//
// each plus beta D + gamma E (optional, shaped like C; symmetric where C is). fp16 in and out, fp32 in between. Of the
// first three only the tiles on and below the diagonal are computed, and each is stored twice, once transposed: 21
// instead of 36 blocks of 128 x 128 for 768 x 768, 136 instead of 256 for 2048 x 2048.
//
// Per matrix scaling without a pass of its own: a Gram product can leave partial sums of |C|_F^2, and a later product
// can take s = 1 / (safety |C|_F^(1/2)) from them (0 for C = 0) and multiply alpha by s^alpha_power and the addends'
// factors by s^addend_power.
//
// Several products (up to kMaxProducts) run as one launch whose tiles are spread over all multiprocessors. Needs
// compute capability 9.0. In the flow: the LMO's orthogonalizer (orthogonalize.h).

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::cuda {

/// Matrices in device memory, rows contiguous. The address must be divisible by 16, both strides (in entries) by 8;
/// the number of columns may be smaller than row_stride and need not be divisible by anything. What lies between the
/// columns and row_stride is neither read nor written.
struct HalfStack {
  __half* data = nullptr;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
};

enum class ProductKind { kRowGram, kColumnGram, kSymmetric, kLeft, kRight };

struct Product {
  ProductKind kind = ProductKind::kRowGram;
  int count = 0;             // matrices
  int rows = 0, columns = 0;  // m, n of the table above; n is unused by kSymmetric
  HalfStack a, b, c;          // b is unused by the Gram kinds; c may not overlap an input
  HalfStack d, e;             // no addend where data is null; e only beside d
  float alpha = 1, beta = 0, gamma = 0;

  float* squares = nullptr;      // out, Gram kinds: (count, product_partials(side of C)) partial sums of |C|_F^2
  const float* bound = nullptr;  // in: such partial sums, of matrices with side bound_side
  int bound_side = 0;
  float safety = 1;
  int alpha_power = 0, addend_power = 0;
};

inline constexpr int kMaxProducts = 4;

/// Partial sums per matrix of a Gram product with C (side, side).
int product_partials(int side);

/// Launches all products at once; none may read what another one writes. `counter` is one int in device memory that is
/// 0 when the kernel starts (it hands out tiles; null: a fixed assignment, slower where tiles differ). With
/// `overlap_previous` the start of the kernel overlaps the end of the previous one, which must be a kernel launch, too.
/// cudaErrorInvalidValue for missing pointers, misaligned strides and empty shapes; cudaErrorNotSupported
/// before compute capability 9.0.
cudaError_t launch_products(const Product* products, int product_count, int* counter, bool overlap_previous,
                            cudaStream_t stream);

}  // namespace gluon::cuda
