#include "gluon/lmo/orthogonalize/blas.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <vector>

namespace gluon::blas {
namespace {

template <typename Real> class BlasTest : public ::testing::Test {
 protected:
  static constexpr at::ScalarType kDtype = c10::CppTypeToScalarType<Real>::value;
  static constexpr double kTolerance = 40 * std::numeric_limits<Real>::epsilon();

  void SetUp() override { at::manual_seed(7); }

  static at::Tensor random(int64_t rows, int64_t columns) { return at::randn({rows, columns}, kDtype); }

  // NaN marks entries that must not be read or that must be overwritten.
  static at::Tensor unset(int64_t n) { return at::full({n, n}, std::nan(""), kDtype); }

  static Real* data(const at::Tensor& x) { return x.data_ptr<Real>(); }

  static void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
    const double error = (actual - expected).norm().template item<double>();
    EXPECT_LE(error, kTolerance * expected.norm().template item<double>());
  }
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BlasTest, Reals);

// Sizes near the block sizes, and others.
constexpr int64_t kSizes[] = {1, 2, 7, 8, 9, 47, 48, 49, 96, 97, 145, 230};

TYPED_TEST(BlasTest, MultiplyIsTheProduct) {
  const at::Tensor a = this->random(5, 70), b = this->random(70, 33);
  at::Tensor c = at::full({5, 33}, std::nan(""), this->kDtype);
  multiply<TypeParam>(5, 33, 70, this->data(a), this->data(b), this->data(c));
  this->expect_close(c, at::matmul(a, b));
}

TYPED_TEST(BlasTest, GramUsesTheSmallerSide) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{13, 50}, {50, 13}, {20, 20}}) {
    const at::Tensor x = this->random(rows, columns);
    at::Tensor r = this->unset(std::min(rows, columns));
    gram<TypeParam>(rows, columns, this->data(x), this->data(r));
    mirror_upper<TypeParam>(r.size(0), this->data(r));
    this->expect_close(r, rows <= columns ? at::matmul(x, x.t()) : at::matmul(x.t(), x));
  }
}

TYPED_TEST(BlasTest, AddSquareReadsAndWritesOneTriangle) {
  const at::Tensor x = this->random(31, 31), r = x + x.t(), z = this->random(31, 31).triu();
  at::Tensor result = z + at::full({31, 31}, 5.0, this->kDtype).tril(-1);
  add_square<TypeParam>(31, TypeParam(0.5), this->data(r), TypeParam(-2), this->data(result));
  this->expect_close(result.triu(), (0.5 * at::matmul(r, r) - 2 * z).triu());
  EXPECT_TRUE(at::equal(result.tril(-1), at::full({31, 31}, 5.0, this->kDtype).tril(-1)));
}

TYPED_TEST(BlasTest, CommutingProductIsExactlySymmetric) {
  for (const int64_t n : kSizes) {
    const at::Tensor x = this->random(n, n), a = x + x.t(), b = at::matmul(a, a);
    at::Tensor c = this->unset(n);
    commuting_product<TypeParam>(n, this->data(a), this->data(b), this->data(c));
    mirror_upper<TypeParam>(n, this->data(c));
    EXPECT_TRUE(at::equal(c, c.t())) << "n = " << n;
    this->expect_close(c, at::matmul(a, b));
  }
}

TYPED_TEST(BlasTest, MirrorCopiesTheUpperTriangle) {
  for (const int64_t n : kSizes) {
    const at::Tensor upper = this->random(n, n).triu();
    at::Tensor c = at::where(at::ones({n, n}, at::kBool).triu(), upper, this->unset(n));
    mirror_upper<TypeParam>(n, this->data(c));
    EXPECT_TRUE(at::equal(c, upper + upper.triu(1).t())) << "n = " << n;
  }
}

TEST(ForMatrixRanges, VisitsEveryMatrixOnceForAnyCountAndThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (int64_t count = 0; count < 9; ++count) {
      std::vector<std::atomic<int>> visits(count);
      for_matrix_ranges(count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1) << count << " matrices, " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

TEST(ForMatrixRanges, ParallelPartIsAMultipleOfTheThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::atomic<int> inside = 0, outside = 0;
  for_matrix_ranges(5, [&](int64_t begin, int64_t end) {
    (at::in_parallel_region() ? inside : outside) += static_cast<int>(end - begin);
  });
  EXPECT_EQ(inside, 4);
  EXPECT_EQ(outside, 1);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace gluon::blas
