// Which path a GPU's step takes and what it says about it; the portable path's iteration against float64. With
// GLUON_PORTABLE_KERNELS=1 the fused step of cuda_test.cpp runs on it, too.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gluon/geometry/presets.h"
#include "gluon/kernels/kernels.h"
#include "gluon/lmo/norm.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

using kernels::StepPath;

bool is_forced() {
  const char* value = std::getenv("GLUON_PORTABLE_KERNELS");
  return value != nullptr && std::string(value) == "1";
}

class FusedPath : public ::testing::Test {
 protected:
  void SetUp() override {
    if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
    if (kernels::step_path(kDevice) == StepPath::kPlain) GTEST_SKIP() << kernels::why_not_hopper(kDevice);
  }

  // What an optimizer on one layer of this size says in its first step.
  std::vector<std::string> warnings_for(at::IntArrayRef sizes) {
    std::vector<std::string> warnings;
    const std::vector<Layer> layers{{"w", random_tensor(sizes, 1).to(kDevice)}};
    Optimizer optimizer(layers, presets::unscion(), {.warn = [&](const std::string& w) { warnings.push_back(w); }});
    at::Tensor(layers[0].parameter).mutable_grad() = random_tensor(sizes, 2).to(kDevice);
    optimizer.step();
    optimizer.wait();
    return warnings;
  }

  const at::Device kDevice{"cuda:0"};
};

TEST(StepPath, IsPlainWithoutAGpu) {
  EXPECT_EQ(kernels::step_path(at::kCPU), StepPath::kPlain);
  EXPECT_FALSE(kernels::why_not_hopper(at::kCPU).empty());
}

TEST_F(FusedPath, IsTheForcedOneAndNamed) {
  const bool hopper = kernels::available(at::empty({1}, kDevice));
  EXPECT_EQ(kernels::step_path(kDevice), hopper && !is_forced() ? StepPath::kHopper : StepPath::kPortable);
  const std::vector<std::string> warnings = warnings_for({16, 32});
  if (kernels::step_path(kDevice) == StepPath::kHopper) {
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EXPECT_EQ(kernels::why_not_hopper(kDevice), "");
    return;
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("products of cuBLAS"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("compute capability"), std::string::npos) << warnings[0];
  if (hopper) {
    EXPECT_NE(warnings[0].find("GLUON_PORTABLE_KERNELS is 1"), std::string::npos) << warnings[0];
  }
}

TEST_F(FusedPath, LayerThatDoesNotFitIsNamedWithTheReason) {
  const std::vector<std::string> warnings = warnings_for({16, 10});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("layer 'w' and those like it do not fit the GPU's fused step (it has 10 columns, which 8 "
                             "does not divide)"),
            std::string::npos)
      << warnings[0];
}

TEST(FusedPathDeathTest, OtherValuesOfTheSwitchAreRejected) {
  if (at::getNumGPUs() == 0 || !kernels::available(at::empty({1}, at::kCUDA))) GTEST_SKIP() << "no Hopper GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, which has not read the switch yet
  EXPECT_EXIT(
      {
        setenv("GLUON_PORTABLE_KERNELS", "yes", 1);
        try {
          kernels::step_path(at::Device("cuda:0"));
        } catch (const InputError& error) {
          std::fputs(error.what(), stderr);
          std::_Exit(3);
        }
      },
      ::testing::ExitedWithCode(3), "GLUON_PORTABLE_KERNELS: expected 0 or 1, got 'yes'");
}

// Three matrices of a shape: a Gaussian, one whose rows shrink to a thirtieth, and zero.
at::Tensor matrices(int64_t m, int64_t n) {
  const at::Tensor shrinking = random_tensor({m, n}, 5).mul_(at::linspace(1, 1.0 / 30, m).unsqueeze(1));
  return at::stack({random_tensor({m, n}, 4), shrinking, at::zeros({m, n})});
}

TEST_F(FusedPath, PortableIterationIsThatOfFloat64) {
  const std::vector<std::vector<int64_t>> shapes{{264, 264}, {300, 40}, {40, 300}, {768, 768}, {1, 64},
                                                 {64, 1},    {13, 10},  {10, 13},  {8, 2048}};
  for (const char* name : {"spectral", "spectral(polar_express:3)", "spectral(polar_squares:8)"}) {
    const NormPtr norm = make_norm(name);
    for (const auto& shape : shapes) {
      for (const double scale : {1e-30, 1.0, 1e30}) {
        const at::Tensor g = matrices(shape[0], shape[1]).mul_(scale);
        const at::Tensor exact = norm->lmo(g.to(at::kDouble));
        const at::Tensor half = kernels::portable_polar_lmo(g.to(kDevice), norm->lmo_form()).cpu().to(at::kDouble);
        ASSERT_EQ(half.sizes(), g.sizes());
        const at::Tensor error = (half - exact).flatten(1).norm(2, 1), length = exact.flatten(1).norm(2, 1);
        // The few singular values of a thin matrix may all lie where the polynomials are steep.
        const double tolerance = std::min(shape[0], shape[1]) < 16 ? 0.06 : 0.02;
        for (int i = 0; i < 2; ++i) {
          EXPECT_LT((error[i] / length[i]).item<double>(), tolerance)
              << name << ' ' << g.sizes() << " times " << scale << ", matrix " << i;
        }
        EXPECT_EQ(half[2].count_nonzero().item<int64_t>(), 0);
      }
    }
  }
}

TEST_F(FusedPath, PortableIterationRepeatsItsBits) {
  const LmoForm form = make_norm("spectral")->lmo_form();
  const at::Tensor g = random_tensor({48, 256, 512}, 9).to(kDevice);
  const at::Tensor first = kernels::portable_polar_lmo(g, form);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(kernels::portable_polar_lmo(g, form).equal(first));
}

TEST_F(FusedPath, FullMemoryIsSaidInOneSentence) {
  const std::vector<Layer> layers{{"w", at::zeros({8192, 8192}, kDevice)}};
  Optimizer optimizer(layers, presets::unscion());
  at::Tensor(layers[0].parameter).mutable_grad() = at::ones({8192, 8192}, kDevice);
  std::vector<at::Tensor> full;
  for (int64_t bytes = int64_t{1} << 40; bytes >= int64_t{1} << 25;) {
    try {
      full.push_back(at::empty({bytes}, at::TensorOptions(kDevice).dtype(at::kByte)));
    } catch (const c10::OutOfMemoryError&) {
      bytes /= 2;
    }
  }
  EXPECT_INPUT_ERROR(optimizer.step(), "MiB left for the optimizer's fused step; set OptimizerOptions::scratch_bytes");
  full.clear();
  optimizer.step();
  optimizer.wait();
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

}  // namespace
}  // namespace gluon
