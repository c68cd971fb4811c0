#include "lab/train/cuda_graph.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <vector>

#include "gluon/geometry/presets.h"
#include "gluon/kernels/kernels.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

class CudaGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
    const std::string why = kernels::why_unavailable(at::Device("cuda:0"));
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(CudaGraphTest, WorkThatThrowsLeavesTheDeviceUsable) {
  const at::Tensor values = at::zeros({1000}, at::Device("cuda:0"));
  EXPECT_THROW(CudaGraph(values.device(),
                         [&] {
                           values.add_(1);
                           (void)at::empty({int64_t{1} << 42}, values.options());  // 16 TiB
                         }),
               c10::OutOfMemoryError);
  CudaGraph graph(values.device(), [&] { values.add_(at::ones({1000}, values.options())); });
  graph.replay();
  EXPECT_EQ(values.sum().item<float>(), 1000);
}

TEST_F(CudaGraphTest, CapturesOnTheGivenDevice) {
  const int last = static_cast<int>(at::getNumGPUs()) - 1;  // the current one if it is alone
  const at::Tensor values = at::zeros({1000}, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(last)));
  CudaGraph graph(values.device(), [&] { values.add_(1); });
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(values.sum().item<float>(), 3000);
}

// Somebody else may have any stream of LibTorch's pools.
TEST_F(CudaGraphTest, CapturesOnAStreamOfItsOwn) {
  const at::Tensor values = at::zeros({1000}, at::Device("cuda:0"));
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  std::vector<c10::Stream> others{cuda.getStream(values.device())};
  for (int i = 0; i < 64; ++i) others.push_back(cuda.getStreamFromGlobalPool(values.device(), i % 2 == 0));
  CudaGraph graph(values.device(), [&] {
    for (const c10::Stream& other : others) EXPECT_NE(cuda.getStream(values.device()), other);
    values.add_(1);
  });
  EXPECT_EQ(cuda.getStream(values.device()), others[0]);
  graph.replay();
  EXPECT_EQ(values.sum().item<float>(), 1000);
}

TEST_F(CudaGraphTest, OptimizerRefusesToStepInsideACapture) {
  const at::Tensor start = at::randn({64, 64}, at::Device("cuda:0"));
  std::vector<Layer> layers{{"w", start.clone()}};
  layers[0].parameter.mutable_grad() = at::ones_like(start);
  Optimizer optimizer(layers, presets::unscion());
  EXPECT_INPUT_ERROR(CudaGraph(start.device(), [&] { optimizer.step(); }), "step() cannot be part of a CUDA graph");
  EXPECT_EQ(optimizer.steps_taken(), 0);
  EXPECT_TRUE(layers[0].parameter.equal(start));
  optimizer.step();
  optimizer.wait();
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

}  // namespace
}  // namespace gluon::lab
