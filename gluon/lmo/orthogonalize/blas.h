// The dense products of the quintic iteration on the CPU, on OpenBLAS: row-major, for Real = float and double.
//
// The iteration's small matrices are symmetric and polynomials of one matrix, so they commute and a product of two is
// symmetric again: one triangle is enough, at half the flops. All functions here write the UPPER triangle of such a
// result (and leave the lower undefined) until mirror_upper() completes it for the next product.

#pragma once

#include <cstdint>
#include <functional>

namespace gluon::blas {

/// c (m, n) = a (m, k) b (k, n); no operand may overlap c.
template <typename Real> void multiply(int64_t m, int64_t n, int64_t k, const Real* a, const Real* b, Real* c);

/// The Gram matrix of x (rows, columns) on its smaller side: r = x x^T if rows <= columns, else x^T x.
template <typename Real> void gram(int64_t rows, int64_t columns, const Real* x, Real* r);

/// z = alpha r r + beta z for symmetric (n, n); r complete, of z the upper triangle is read and written.
template <typename Real> void add_square(int64_t n, Real alpha, const Real* r, Real beta, Real* z);

/// c = a b for complete symmetric (n, n) that commute; neither may overlap c.
template <typename Real> void commuting_product(int64_t n, const Real* a, const Real* b, Real* c);

/// Copies the upper triangle of c (n, n) onto the lower.
template <typename Real> void mirror_upper(int64_t n, Real* c);

/// Calls run(begin, end) so that every matrix 0..count-1 is visited once: one range per thread with sequential BLAS
/// while there are enough matrices for all threads, the rest one after another with threaded BLAS.
void for_matrix_ranges(int64_t count, const std::function<void(int64_t begin, int64_t end)>& run);

}  // namespace gluon::blas
