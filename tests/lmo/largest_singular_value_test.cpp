#include "gluon/lmo/largest_singular_value.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>
#include <limits>

#include "gluon/lmo/norm.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon {
namespace {

std::vector<at::Device> devices() {
  std::vector<at::Device> all{at::kCPU};
  if (at::getNumGPUs() > 0) all.emplace_back(at::kCUDA);
  return all;
}

at::Tensor orthonormal(int64_t m, int64_t n) { return std::get<0>(at::linalg_qr(at::randn({m, n}, at::kDouble))); }

// (1, m, n) with the singular values s.
at::Tensor with_singular_values(const at::Tensor& s, int64_t m, int64_t n) {
  return at::matmul(orthonormal(m, s.size(0)) * s, orthonormal(n, s.size(0)).t()).unsqueeze(0);
}

at::Tensor indices(int64_t n) { return at::arange(1, n + 1, at::kDouble); }
at::Tensor uniform(int64_t n) { return at::rand({n}, at::kDouble); }

at::Tensor exact(const at::Tensor& x) { return at::linalg_svdvals(x.to(at::kDouble)).amax(-1); }

// Relative errors of x in `type` on every device stay in [-below, above].
void expect_within(const at::Tensor& x, const at::Tensor& wanted, at::ScalarType type, double below, double above,
                   const char* what) {
  for (const at::Device device : devices()) {
    const at::Tensor got = largest_singular_values(x.to(device, type));
    ASSERT_EQ(got.scalar_type(), type);
    ASSERT_EQ(got.sizes(), wanted.sizes());
    const at::Tensor error = got.to(at::kCPU, at::kDouble) / wanted - 1;
    EXPECT_GE(error.min().item<double>(), -below) << what << " on " << device;
    EXPECT_LE(error.max().item<double>(), above) << what << " on " << device;
  }
}

TEST(LargestSingularValue, EverySpectrum) {
  at::manual_seed(1);
  struct Case {
    const char* name;
    at::Tensor x;  // (1, m, n) float64
    double below = 1e-5;
  };
  const auto four = make_orthogonalizer("polar_express:4");
  const at::Tensor low_rank =
      at::matmul(at::randn({1, 384, 64}, at::kDouble), at::randn({1, 64, 512}, at::kDouble)) / 8;
  at::Tensor graded = at::full({40}, 1e-30, at::kDouble);
  graded[0] = 1;
  at::Tensor entry = at::zeros({1, 50, 60}, at::kDouble);
  entry[0][3][7] = -2;
  for (const Case& c : std::vector<Case>{
           // Flat: the displacement of a step is a radius times such a matrix.
           {"0.8..1.1, square", with_singular_values(0.8 + 0.3 * uniform(512), 512, 512), 1e-3},
           {"0.8..1.1, tall", with_singular_values(0.8 + 0.3 * uniform(384), 1536, 384), 1e-3},
           {"0.8..1.1, wide", with_singular_values(0.8 + 0.3 * uniform(384), 384, 1536), 1e-3},
           {"0.999..1.001", with_singular_values(0.999 + 0.002 * uniform(384), 384, 384)},
           {"a direction", four->polar(at::randn({1, 512, 512}, at::kDouble)), 1e-3},
           {"a direction of 1/i", four->polar(with_singular_values(1 / indices(384), 384, 512)), 1e-3},
           {"Gaussian", at::randn({1, 512, 512}, at::kDouble)},
           // Decaying.
           {"1/i", with_singular_values(1 / indices(384), 384, 384)},
           {"1/i, tall", with_singular_values(1 / indices(256), 1024, 256)},
           {"1/sqrt(i)", with_singular_values(indices(384).rsqrt(), 384, 384)},
           {"rank 64 plus noise", low_rank + 1e-4 * at::randn({1, 384, 512}, at::kDouble)},
           // Krylov spaces that end early: the next vector is only rounding error.
           {"rank 1", with_singular_values(at::ones({1}, at::kDouble), 200, 100)},
           {"rank 2", with_singular_values(at::ones({2}, at::kDouble), 100, 200)},
           {"identity", at::eye(200, at::kDouble).unsqueeze(0)},
           {"orthogonal", orthonormal(300, 100).unsqueeze(0)},
           {"ones", at::ones({1, 300, 100}, at::kDouble)},
           {"graded", at::diag(graded).unsqueeze(0)},
           {"one entry", entry},
           {"one row", at::randn({1, 1, 70}, at::kDouble)},
           {"one column", at::randn({1, 70, 1}, at::kDouble)},
           {"one number", at::full({1, 1, 1}, -3, at::kDouble)},
       }) {
    expect_within(c.x, exact(c.x), at::kFloat, c.below, 5e-6, c.name);
    expect_within(c.x, exact(c.x), at::kDouble, c.below, 1e-9, c.name);
  }
}

TEST(LargestSingularValue, StacksOfSmallMatrices) {
  at::manual_seed(4);
  for (int64_t m = 1; m <= 40; m += 3) {
    for (const int64_t n : {1, 2, 5, 16, 33, 40}) {
      const at::Tensor x = at::randn({20, m, n}, at::kDouble);
      expect_within(x, exact(x), at::kFloat, 1e-5, 2e-6, "small");
      expect_within(x, exact(x), at::kDouble, 1e-6, 1e-9, "small");
    }
  }
}

TEST(LargestSingularValue, AnyScale) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3, 64, 96}, at::kDouble);
  for (const double scale : {1e-30, 1e-10, 1e10, 1e30}) {
    expect_within(x * scale, exact(x) * scale, at::kFloat, 1e-5, 2e-6, "scaled");
  }
}

TEST(LargestSingularValue, ZeroGivesZeroAndNaNStaysInItsMatrix) {
  at::manual_seed(6);
  for (const at::Device device : devices()) {
    at::Tensor x = at::randn({4, 30, 20});
    x[1].zero_();
    x[2][7][7] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor got = largest_singular_values(x.to(device)).cpu();
    EXPECT_EQ(got[1].item<float>(), 0);
    EXPECT_TRUE(std::isnan(got[2].item<float>()));
    for (const int64_t i : {0, 3}) {
      EXPECT_NEAR(got[i].item<double>() / exact(x.narrow(0, i, 1)).item<double>(), 1, 1e-5);
    }
    for (const auto& sizes : {std::vector<int64_t>{0, 3, 2}, {2, 0, 3}, {2, 3, 0}}) {
      const at::Tensor empty = largest_singular_values(at::ones(sizes).to(device)).cpu();
      EXPECT_TRUE(empty.equal(at::zeros({sizes[0]})));
    }
  }
}

TEST(LargestSingularValue, IsDeterministicForAnyStridesAndDoesNotModifyItsInput) {
  at::manual_seed(7);
  for (const at::Device device : devices()) {
    const at::Tensor x = at::randn({3, 50, 40}).to(device);
    const at::Tensor kept = x.clone();
    const at::Tensor first = largest_singular_values(x);
    EXPECT_TRUE(first.equal(largest_singular_values(x)));
    EXPECT_TRUE(x.equal(kept));
    EXPECT_TRUE(largest_singular_values(x.transpose(1, 2)).allclose(first, 1e-6));
    EXPECT_TRUE(largest_singular_values(x.slice(2, 0, 40, 2))
                    .allclose(largest_singular_values(x.slice(2, 0, 40, 2).contiguous()), 1e-6));
  }
}

TEST(LargestSingularValue, SpectralNormUsesItOnAGpuWithoutAutograd) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const at::Tensor x = at::randn({2, 40, 30}, at::device(at::kCUDA).dtype(at::kDouble));
  const auto norm = make_norm("scaled(2,spectral)");
  EXPECT_TRUE(norm->norm(x).equal(largest_singular_values(x) * 2));
  const at::Tensor wanted = x.clone().requires_grad_();
  norm->norm(wanted).sum().backward();
  EXPECT_NEAR(wanted.grad().square().sum().item<double>(), 8, 1e-9);  // 2 u v^T of each matrix
}

}  // namespace
}  // namespace gluon
