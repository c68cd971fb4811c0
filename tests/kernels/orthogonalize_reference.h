// References for the half precision products and the orthogonalizer: products and iterations by cuBLAS in float64 and
// bfloat16. Stacks are (count, m, n), dense and row-major.

#pragma once

#include <cublas_v2.h>

#include "gluon/lmo/orthogonalize/coefficients.h"
#include "tests/kernels/device_array.h"

namespace gluon::kernel_check {

inline void require(cublasStatus_t status, std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("FAILED %s:%u: cuBLAS status %d\n", where.file_name(), static_cast<unsigned>(where.line()),
              static_cast<int>(status));
  std::exit(1);
}

std::vector<double> gaussian(int64_t size, unsigned seed);

/// |x - y| / |y|; NaN counts as infinite.
double relative_error(const std::vector<double>& x, const std::vector<double>& y);

/// |x - y| / sqrt(side), root mean square over `count` matrices; NaN counts as infinite.
double distance(const std::vector<double>& x, const std::vector<double>& y, int count, int side);

/// The distance of X X^T or X^T X, the smaller, from the identity.
double orthogonality_error(const std::vector<double>& x, int count, int m, int n);

/// The (count, m, n) entries of a half precision stack whose rows are `row_stride` apart.
std::vector<double> gather(const std::vector<__half>& stack, int count, int m, int n, int64_t row_stride);

/// x with the Frobenius norm of each of its `count` matrices set to `factor`; zero stays zero.
std::vector<double> scaled_by_frobenius(std::vector<double> x, int count, double factor);

/// C (m, n) = alpha op(A) op(B) + beta C for each of `count` matrices.
void multiply(int count, int m, int n, int k, double alpha, const double* a, bool transpose_a, const double* b,
              bool transpose_b, double beta, double* c);

std::vector<double> exact_polar(const std::vector<double>& x, int count, int m, int n);

/// Five steps of Polar Express in bfloat16, as published.
std::vector<double> bf16_polar_express(const std::vector<double>& x, int count, int m, int n);

/// The orthogonalizer's polynomials and start bound in float64.
std::vector<double> same_polynomials(const std::vector<double>& x, int count, int m, int n,
                                     const std::vector<Quintic>& steps);

}  // namespace gluon::kernel_check
