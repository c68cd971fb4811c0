#include "gluon/lmo/orthogonalize/svd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace gluon {
namespace {

class SvdTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(3); }

  static double distance(const at::Tensor& x, const at::Tensor& y) {
    return (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>();
  }

  SvdOrthogonalizer svd_;
};

TEST_F(SvdTest, PolarFactorOfAKnownDecomposition) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{9, 9}, {5, 12}, {12, 5}, {1, 7}, {7, 1}, {1, 1}}) {
    const int64_t k = std::min(m, n);
    const at::Tensor u = std::get<0>(at::linalg_qr(at::randn({2, m, k}, at::kDouble)));
    const at::Tensor v = std::get<0>(at::linalg_qr(at::randn({2, n, k}, at::kDouble)));
    const at::Tensor sigma = at::rand({2, 1, k}, at::kDouble) + 0.01;
    const at::Tensor g = at::bmm(u * sigma, v.transpose(1, 2));
    EXPECT_LT(distance(svd_.polar(g), at::bmm(u, v.transpose(1, 2))), 1e-12) << m << " x " << n;
  }
}

TEST_F(SvdTest, ScaleDoesNotMatter) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor g = at::randn({2, 8, 20}, dtype), expected = svd_.polar(g);
    for (const double scale : {1e-37, 1e-30, 1e30, 1e36}) {
      EXPECT_LT(distance(svd_.polar(g * scale), expected), 5e-6) << scale;
    }
  }
}

TEST_F(SvdTest, ZeroMatricesInABatchStayZero) {
  at::Tensor g = at::randn({3, 6, 4});
  g[1].zero_();
  const at::Tensor polar = svd_.polar(g);
  EXPECT_EQ(polar[1].abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(polar[2], svd_.polar(g.slice(0, 2, 3))[0]));
}

TEST_F(SvdTest, NoiseDirectionsAreDropped) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor u = std::get<0>(at::linalg_qr(at::randn({1, 30, 3}, dtype)));
    const at::Tensor v = std::get<0>(at::linalg_qr(at::randn({1, 40, 3}, dtype)));
    const at::Tensor sigma = at::tensor({5.0, 1.0, 0.1}).to(dtype);
    const at::Tensor g = at::bmm(u * sigma, v.transpose(1, 2));
    EXPECT_LT(distance(svd_.polar(g), at::bmm(u, v.transpose(1, 2))), 2e-5);
    EXPECT_NEAR(svd_.polar(g).square().sum().item<double>(), 3, 1e-4);
  }
}

TEST_F(SvdTest, SmallButRealDirectionsAreKept) {
  const at::Tensor g = at::diag(at::tensor({1.0, 1e-5}).to(at::kFloat)).unsqueeze(0);
  EXPECT_LT(distance(svd_.polar(g)[0], at::eye(2)), 1e-6);
}

TEST_F(SvdTest, InputIsNotModified) {
  const at::Tensor g = at::randn({2, 5, 5}), before = g.clone();
  svd_.polar(g);
  EXPECT_TRUE(at::equal(g, before));
}

}  // namespace
}  // namespace gluon
