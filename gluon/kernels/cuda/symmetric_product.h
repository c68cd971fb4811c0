// Batched half precision products on Hopper's tensor cores, for iterations on symmetric matrices.
//
//   kRowGram      C (m, m) = alpha A A^T        A (m, n)
//   kColumnGram   C (n, n) = alpha A^T A        A (m, n)
//   kSymmetric    C (m, m) = alpha A B          A, B (m, m) symmetric and commuting: polynomials of one matrix
//   kLeft         C (m, n) = alpha A B          A (m, m), B (m, n)
//   kRight        C (m, n) = alpha A B          A (m, n), B (n, n) symmetric
//
// each plus beta D (optional, shaped like C; symmetric where C is), the first three also plus a multiple of I. fp16 in
// and out, fp32 in between. Of the first three only the tiles on and below the diagonal are computed, and each is
// stored twice, once transposed: 21 instead of 36 blocks of 128 x 128 for 768 x 768, 136 instead of 256 for 2048 x
// 2048.
//
// Scaling each matrix needs no extra pass: a Gram product can write partial sums of |C|_F^2, and a later product can
// compute s = 1 / (safety |C|_F^(1/2)) from them (0 for C = 0) and multiply alpha by s^alpha_power and beta by
// s^addend_power.
//
// Many products run as one launch. Products with the same `chain` depend on each other matrix by matrix: a product
// starts on a matrix as soon as the previous product of its chain has finished that matrix, so that no multiprocessor
// idles between products. The launch is cooperative: it may share the device with other launches, of products too, and
// CUDA graphs can hold it. Needs compute capability 9.0. In the flow: the LMO's orthogonalizer (orthogonalize.h).

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {

/// Matrices in device memory, rows contiguous. The address must be divisible by 16, both strides (in entries) by 8;
/// the number of columns may be any number up to row_stride. Entries beyond the columns are not read, and not written
/// except for zeros up to the next multiple of 8.
struct HalfStack {
  __half* data = nullptr;
  int64_t row_stride = 0;
  int64_t matrix_stride = 0;
};

inline constexpr int kMaxMatrices = 0x7fff;  // of a product

enum class ProductKind { kRowGram, kColumnGram, kSymmetric, kLeft, kRight };

struct Product {
  ProductKind kind = ProductKind::kRowGram;
  int count = 0;              // matrices
  int rows = 0, columns = 0;  // m, n of the table above; n is unused by kSymmetric
  HalfStack a, b, c;          // b is unused by the Gram kinds; c may not overlap an input
  HalfStack d;                // no addend where data is null
  float alpha = 1, beta = 0;
  float identity = 0;  // times I
  int chain = 0;       // all products of a chain have the same count

  float* squares = nullptr;      // out, Gram kinds: (count, product_partials(side of C)) partial sums of |C|_F^2
  const float* bound = nullptr;  // in: such partial sums, of matrices with side bound_side
  int bound_side = 0;
  float safety = 1;
  int alpha_power = 0, addend_power = 0;

  // For kLeft and kRight with n divisible by 64: instead of being stored, C, rounded to half precision, is added to
  // contiguous float32 matrices (m, n), T_i += factor radii_i C_i. c then only gives its shape.
  struct Target {
    float* const* matrices = nullptr;  // count pointers in device memory, divisible by 8; null: C is stored
    const float* radii = nullptr;
    float factor = 1;
    const Verdict* verdict = nullptr;  // see verdict.h
  } target;
};

/// Limits of one launch: products, and different operands (the same memory with another shape is another operand).
inline constexpr int kMaxProducts = 96, kMaxOperands = 64;

/// Partial sums per matrix of a Gram product with C (side, side).
int product_partials(int side);

/// Counters (ints of device memory) that a launch of these products needs.
int64_t product_progress(std::span<const Product> products);

/// Runs the products, those of a chain in this order; no chain may read or write what another chain writes. `progress`:
/// product_progress() ints of device memory, cleared first, of no other launch that runs at the time.
/// cudaErrorInvalidValue for missing pointers, misaligned strides, empty shapes and too many products;
/// cudaErrorNotSupported before compute capability 9.0; cudaErrorCooperativeLaunchTooLarge where the process may not
/// use enough multiprocessors.
cudaError_t launch_products(std::span<const Product> products, int* progress, cudaStream_t stream);

}  // namespace gluon::cuda
