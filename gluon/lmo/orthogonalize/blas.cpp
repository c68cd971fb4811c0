#include "gluon/lmo/orthogonalize/blas.h"

#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <cblas.h>

#include <algorithm>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile with OpenMP: at::parallel_for is inline and would silently use one thread"
#endif

namespace gluon::blas {
namespace {

// Diagonal blocks are computed whole, which wastes kLeaf / n of the flops; smaller ones leave the products too thin. 48
// is best for n in 256..1024: 165 Gflop/s of useful work at n = 768 where a full product runs at 204.
constexpr int64_t kLeaf = 48;
constexpr int64_t kMirrorBlock = 8;  // larger ones evict themselves where the row length is a power of two

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}

void gemm(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double* c,
          int64_t ldc) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}

void syrk(CBLAS_TRANSPOSE transpose, int64_t n, int64_t k, float alpha, const float* a, int64_t lda, float beta,
          float* c) {
  cblas_ssyrk(CblasRowMajor, CblasUpper, transpose, n, k, alpha, a, lda, beta, c, n);
}

void syrk(CBLAS_TRANSPOSE transpose, int64_t n, int64_t k, double alpha, const double* a, int64_t lda, double beta,
          double* c) {
  cblas_dsyrk(CblasRowMajor, CblasUpper, transpose, n, k, alpha, a, lda, beta, c, n);
}

// Rows and columns begin..end-1 of c = a b: both halves of the diagonal, and the block above it in one product.
template <typename Real>
void upper_product(int64_t n, int64_t begin, int64_t end, const Real* a, const Real* b, Real* c) {
  const int64_t size = end - begin;
  if (size <= kLeaf) {
    gemm(size, size, n, a + begin * n, n, b + begin, n, c + begin * n + begin, n);
    return;
  }
  const int64_t leaves = (size + kLeaf - 1) / kLeaf;
  const int64_t middle = begin + (leaves + 1) / 2 * kLeaf;
  upper_product(n, begin, middle, a, b, c);
  upper_product(n, middle, end, a, b, c);
  gemm(middle - begin, end - middle, n, a + begin * n, n, b + middle, n, c + begin * n + middle, n);
}

// OpenBLAS built on its own threads does not notice that it runs inside one of ours; built on OpenMP it does.
class SequentialBlas {
 public:
  SequentialBlas() {
    if (openblas_get_parallel() == kOwnThreads) {
      threads_ = openblas_get_num_threads();
      openblas_set_num_threads(1);
    }
  }
  ~SequentialBlas() {
    if (threads_ > 0) openblas_set_num_threads(threads_);
  }
  SequentialBlas(const SequentialBlas&) = delete;
  SequentialBlas& operator=(const SequentialBlas&) = delete;

 private:
  static constexpr int kOwnThreads = 1;
  int threads_ = 0;
};

}  // namespace

template <typename Real> void multiply(int64_t m, int64_t n, int64_t k, const Real* a, const Real* b, Real* c) {
  gemm(m, n, k, a, k, b, n, c, n);
}

template <typename Real> void gram(int64_t rows, int64_t columns, const Real* x, Real* r) {
  const bool wide = rows <= columns;
  syrk(wide ? CblasNoTrans : CblasTrans, std::min(rows, columns), std::max(rows, columns), Real(1), x, columns, Real(0),
       r);
}

template <typename Real> void add_square(int64_t n, Real alpha, const Real* r, Real beta, Real* z) {
  syrk(CblasNoTrans, n, n, alpha, r, n, beta, z);
}

template <typename Real> void commuting_product(int64_t n, const Real* a, const Real* b, Real* c) {
  upper_product(n, 0, n, a, b, c);
}

template <typename Real> void mirror_upper(int64_t n, Real* c) {
  for (int64_t top = 0; top < n; top += kMirrorBlock) {
    const int64_t bottom = std::min(n, top + kMirrorBlock);
    for (int64_t left = top; left < n; left += kMirrorBlock) {
      const int64_t right = std::min(n, left + kMirrorBlock);
      for (int64_t column = left; column < right; ++column) {
        const int64_t last = std::min(bottom, column);
        for (int64_t row = top; row < last; ++row) c[column * n + row] = c[row * n + column];
      }
    }
  }
}

void for_matrix_ranges(int64_t count, const std::function<void(int64_t begin, int64_t end)>& run) {
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t distributed = threads > 1 ? count - count % threads : 0;
  if (distributed > 0) {
    const SequentialBlas sequential;
    at::parallel_for(0, distributed, 1, run);
  }
  if (distributed < count) run(distributed, count);
}

#define GLUON_INSTANTIATE(Real)                                                       \
  template void multiply(int64_t, int64_t, int64_t, const Real*, const Real*, Real*); \
  template void gram(int64_t, int64_t, const Real*, Real*);                           \
  template void add_square(int64_t, Real, const Real*, Real, Real*);                  \
  template void commuting_product(int64_t, const Real*, const Real*, Real*);          \
  template void mirror_upper(int64_t, Real*);
GLUON_INSTANTIATE(float)
GLUON_INSTANTIATE(double)
#undef GLUON_INSTANTIATE

}  // namespace gluon::blas
