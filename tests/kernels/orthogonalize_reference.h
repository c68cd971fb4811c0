// References for the half precision products and the orthogonalizer: products and iterations by cuBLAS in float64 and
// bfloat16. Stacks are (count, m, n), dense and row-major.

#pragma once

#include <cublas_v2.h>

#include "gluon/lmo/orthogonalize/coefficients.h"
#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {

inline void require(cublasStatus_t status, std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("FAILED %s:%u: cuBLAS status %d\n", where.file_name(), static_cast<unsigned>(where.line()),
              static_cast<int>(status));
  std::exit(1);
}

Vector gaussian(int64_t size, unsigned seed);

/// |x - y| / sqrt(unit); NaN counts as infinite.
double distance(const Vector& x, const Vector& y, double unit);

/// The distance of X X^T or X^T X, the smaller, from the identity, root mean square over the matrices' singular values.
double orthogonality_error(const Vector& x, int count, int m, int n);

/// The (count, m, n) entries of a half precision stack whose rows are `row_stride` apart.
Vector gather(const std::vector<__half>& stack, int count, int m, int n, int64_t row_stride);

/// x with the Frobenius norm of each of its `count` matrices set to `factor`; zero stays zero.
Vector scaled_by_frobenius(Vector x, int count, double factor);

/// C (m, n) = alpha op(A) op(B) + beta C for each of `count` matrices.
void multiply(int count, int m, int n, int k, double alpha, const double* a, bool transpose_a, const double* b,
              bool transpose_b, double beta, double* c);

/// The polar factor in float64.
Vector exact_polar(const Vector& x, int count, int m, int n);

/// Five steps of Polar Express in bfloat16, as published.
Vector bf16_polar_express(const Vector& x, int count, int m, int n);

/// The orthogonalizer's polynomials and start bound in float64.
Vector same_polynomials(const Vector& x, int count, int m, int n, const std::vector<PolarStep>& steps);

}  // namespace gluon::kernel_check
