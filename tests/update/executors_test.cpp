#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "gluon/update/fused_executor.h"
#include "gluon/update/plain_executor.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

LayerBatch batch_of(std::size_t count, const Momentum& momentum, std::initializer_list<std::size_t> without = {}) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < count; ++i) {
    layers.push_back({join("layer", i), at::zeros({4, 8})});
    if (std::find(without.begin(), without.end(), i) == without.end()) {
      layers.back().parameter.mutable_grad() = at::ones({4, 8});
    }
  }
  const Rule rule{.norm = "max_entry"};
  return {route(layers, Geometry({rule})).batches.front(), rule, momentum};
}

std::vector<std::size_t> run_sizes(const LayerBatch& batch, int64_t bytes) {
  std::vector<std::size_t> sizes;
  for (const auto& run : scratch_runs(batch, bytes)) sizes.push_back(run.size());
  return sizes;
}

constexpr int64_t kMatrixBytes = 4 * 8 * 4;

TEST(PlainExecutor, ScratchLimitsTheRuns) {
  const LayerBatch batch = batch_of(5, Momentum::ema(0.9));
  EXPECT_EQ(run_sizes(batch, 1 << 20), (std::vector<std::size_t>{5}));
  EXPECT_EQ(run_sizes(batch, 2 * kMatrixBytes), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(run_sizes(batch, 1), (std::vector<std::size_t>{1, 1, 1, 1, 1}));
}

TEST(PlainExecutor, InputBesideTheBufferCountsAsScratch) {
  EXPECT_EQ(run_sizes(batch_of(4, Momentum::nesterov(0.9)), 2 * kMatrixBytes), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(run_sizes(batch_of(4, Momentum::none()), 4 * kMatrixBytes), (std::vector<std::size_t>{2, 2}));
}

TEST(PlainExecutor, BlocksWithoutGradientAreLeftOut) {
  const LayerBatch batch = batch_of(6, Momentum::ema(0.9), {0, 3, 5});
  EXPECT_EQ(run_sizes(batch, 1 << 20), (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(scratch_runs(batch, 1 << 20)[1].front().name, "layer4");
  EXPECT_TRUE(run_sizes(batch_of(2, Momentum::none(), {0, 1}), 1 << 20).empty());
}

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
