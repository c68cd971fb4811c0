#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <vector>

#include "gluon/update/fused_executor.h"

namespace gluon {
namespace {

// What smoothness samples use as the dual norm on a GPU, in float16 where the kernels run.
TEST(DeviceLmo, EightStepsReachTheDualNorm) {
  at::manual_seed(1);
  const int64_t n = 384;
  const auto orthonormal = [&] { return std::get<0>(at::linalg_qr(at::randn({n, n}, at::kDouble))); };
  const at::Tensor index = at::arange(1, n + 1, at::kDouble);
  const auto power_law = [&](double power) { return at::matmul(orthonormal() * index.pow(-power), orthonormal()); };
  const at::Tensor low_rank = at::matmul(at::randn({n, 64}, at::kDouble), at::randn({64, n}, at::kDouble)) / 8;
  struct Case {
    const char* name;
    at::Tensor g;
    double tolerance;
  };
  std::vector<at::Device> devices{at::kCPU};
  if (at::getNumGPUs() > 0) devices.emplace_back(at::kCUDA);
  const NormPtr norm = make_norm("spectral(polar_express:8)");
  for (const Case& c : std::vector<Case>{
           {"Gaussian", at::randn({n, n}, at::kDouble), 2e-4},
           {"1/i", power_law(1), 2e-4},
           {"i^-1.5", power_law(1.5), 1e-3},
           {"i^-2", power_law(2), 3e-3},
           {"rank 64 plus noise", low_rank + 1e-4 * at::randn({n, n}, at::kDouble), 5e-4},
       }) {
    const double dual = norm->dual_norm(c.g.unsqueeze(0)).item<double>();
    for (const at::Device device : devices) {
      const at::Tensor g = c.g.unsqueeze(0).to(device, at::kFloat);
      const double reached = -(g * device_lmo(*norm, g)).sum().item<double>();
      EXPECT_NEAR(reached / dual, 1, c.tolerance) << c.name << " on " << device;
    }
  }
}

}  // namespace
}  // namespace gluon
