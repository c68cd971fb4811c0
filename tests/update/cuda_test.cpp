// The same steps on a GPU as on the CPU, to the rounding of its products.

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "gluon/update/optimizer.h"
#include "gluon/update/presets.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

std::vector<Layer> on_cuda(std::vector<Layer> layers) {
  for (Layer& layer : layers) layer.parameter = layer.parameter.cuda();
  return layers;
}

TEST(Cuda, EveryPresetStepsAsOnTheCpu) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  for (const char* preset : {"muon", "scion", "unscion", "sign_descent", "normalized_descent", "adamw"}) {
    for (auto cpu : {transformer_layers(), cnn_layers()}) {
      auto gpu = on_cuda(cpu);
      Optimizer cpu_optimizer(cpu, presets::make(preset));
      Optimizer gpu_optimizer(gpu, presets::make(preset));
      for (uint64_t step = 0; step < 3; ++step) {
        for (std::size_t i = 0; i < cpu.size(); ++i) {
          const at::Tensor gradient =
              random_tensor(cpu[i].parameter.sizes(), 50 + 10 * step + i, at::kDouble);
          cpu[i].parameter.mutable_grad() = gradient;
          gpu[i].parameter.mutable_grad() = gradient.cuda();
        }
        cpu_optimizer.step();
        gpu_optimizer.step();
      }
      for (std::size_t i = 0; i < cpu.size(); ++i) {
        EXPECT_TRUE(gpu[i].parameter.cpu().allclose(cpu[i].parameter, 1e-8, 1e-10))
            << preset << " " << cpu[i].name;
      }
    }
  }
}

TEST(Cuda, ANonFiniteGradientIsFoundOnTheDevice) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<Layer> layers{{"w", at::randn({3, 4}).cuda()}};
  Optimizer optimizer(layers, presets::unscion());
  layers[0].parameter.mutable_grad() = at::ones({3, 4}).cuda();
  layers[0].parameter.mutable_grad()[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_INPUT_ERROR(optimizer.step(), "the gradient of layer 'w' holds NaN or Inf");
}

}  // namespace
}  // namespace gluon
