// The same steps on a GPU as on the CPU, to the rounding of its products.

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>

#include "gluon/geometry/presets.h"
#include "gluon/kernels/kernels.h"
#include "gluon/update/optimizer.h"
#include "gluon/update/qk_clip.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

// The same on every device, in new memory each time.
void set_gradients(const std::vector<Layer>& layers, uint64_t seed) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    at::Tensor parameter = layers[i].parameter;
    const at::Tensor gradient = random_tensor(parameter.sizes(), 100 * seed + i, at::kFloat);
    parameter.mutable_grad() = gradient.to(parameter.device(), parameter.scalar_type());
  }
}

TEST(Cuda, QkClipIsThatOfTheCpu) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const at::Tensor logits = at::tensor({400.F, 5.F, NAN, 130.F});
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor query = random_tensor({8, 5}, 1).to(type), key = random_tensor({8, 5}, 2).to(type);
    const at::Tensor gpu_query = query.cuda(), gpu_key = key.cuda();
    const at::Tensor gamma = qk_clip(query, key, logits), gpu_gamma = qk_clip(gpu_query, gpu_key, logits.cuda());
    EXPECT_TRUE(at::allclose(gpu_gamma.cpu(), gamma, 1e-6, 0, /*equal_nan=*/true)) << type;
    EXPECT_TRUE(at::allclose(gpu_query.cpu(), query, 1e-2, 0)) << type;
    EXPECT_TRUE(at::allclose(gpu_key.cpu(), key, 1e-2, 0)) << type;
    EXPECT_TRUE(gpu_query.cpu().narrow(0, 2, 4).equal(query.narrow(0, 2, 4))) << type;  // the heads that stay
  }
}

TEST(Cuda, EveryPresetStepsAsOnTheCpu) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  for (const char* preset :
       {"muon", "scion", "unscion", "sphere", "normuon", "sign_descent", "normalized_descent", "sgd", "adamw"}) {
    const Geometry geometry = std::string(preset) == "sphere" ? presets::sphere({.steps = 3}) : presets::make(preset);
    for (auto cpu : {transformer_layers(), cnn_layers()}) {
      auto gpu = cpu;
      for (Layer& layer : gpu) layer.parameter = layer.parameter.cuda();
      Optimizer cpu_optimizer(cpu, geometry);
      Optimizer gpu_optimizer(gpu, geometry);
      for (const std::string& report : {gpu_optimizer.routing_report(), cpu_optimizer.routing_report()}) {
        EXPECT_EQ(report.find("not part of the GPU's fused step"), std::string::npos) << report;
      }
      for (uint64_t step = 0; step < 3; ++step) {
        set_gradients(cpu, step);
        set_gradients(gpu, step);
        cpu_optimizer.step();
        gpu_optimizer.step();
      }
      for (std::size_t i = 0; i < cpu.size(); ++i) {
        EXPECT_TRUE(gpu[i].parameter.cpu().allclose(cpu[i].parameter, 1e-8, 1e-10)) << preset << " " << cpu[i].name;
      }
    }
  }
}

TEST(Cuda, NonFiniteGradientIsFoundOnTheDevice) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<Layer> layers{{"w", at::randn({3, 4}).cuda()}};
  Optimizer optimizer(layers, presets::unscion());
  layers[0].parameter.mutable_grad() = at::ones({3, 4}).cuda();
  layers[0].parameter.mutable_grad()[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_INPUT_ERROR(optimizer.step(), "the gradient of layer 'w' holds NaN or Inf");
}

// Float32 layers of three shapes and an embedding: what the fused step moves.
std::vector<Layer> fused_layers() {
  std::vector<Layer> layers;
  const auto add = [&](std::vector<int64_t> sizes, Role role) {
    const at::Tensor parameter = random_tensor(sizes, 7 + layers.size(), at::kFloat).cuda();
    layers.push_back({join("layer", layers.size()), parameter, role});
  };
  for (int i = 0; i < 3; ++i) add({264, 264}, Role::kHidden);
  add({512, 128}, Role::kHidden);
  add({128, 512}, Role::kHidden);
  add({1000, 128}, Role::kEmbedding);
  return layers;
}

class Fused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
    const at::Device device("cuda:0");
    if (kernels::step_path(device) == kernels::StepPath::kPlain) GTEST_SKIP() << kernels::why_not_hopper(device);
  }
};

// Rules for hidden matrices with all that the fused step moves, beside an embedding with a cautious decay.
Geometry shaped(const Rule& hidden) {
  Rule rule = hidden;
  rule.role = Role::kHidden;
  rule.radius = 0.05;
  return Geometry({rule, {.norm = "max_entry", .radius = 0.01, .decay = "cautious(0.5)"}});
}

std::vector<std::pair<std::string, Geometry>> fused_geometries() {
  std::vector<std::pair<std::string, Geometry>> all;
  for (const char* preset : {"unscion", "scion", "muon", "normuon"}) all.emplace_back(preset, presets::make(preset));
  all.emplace_back("sphere", presets::sphere({.steps = 6}));
  all.emplace_back("entries", shaped({.normalize = "adamuon(0.9)", .decay = "cautious(0.3,warmup(3))"}));
  all.emplace_back("rows on a sphere", shaped({.normalize = "normuon(0.9)", .sphere = 3.0}));
  all.emplace_back("entries on a sphere", shaped({.normalize = "adamuon(0.9)", .sphere = 3.0}));
  return all;
}

TEST_F(Fused, StepsAsOnTheCpu) {
  for (const auto& [name, geometry] : fused_geometries()) {
    const std::vector<Layer> gpu = fused_layers();
    std::vector<Layer> cpu = gpu;
    for (Layer& layer : cpu) layer.parameter = layer.parameter.cpu().to(at::kDouble);
    const std::vector<at::Tensor> start = copies_of(cpu);
    Optimizer gpu_optimizer(gpu, geometry, {.schedule = Schedule::linear(8, 6)});
    Optimizer cpu_optimizer(cpu, geometry, {.schedule = Schedule::linear(8, 6)});
    for (uint64_t step = 0; step < 5; ++step) {
      set_gradients(gpu, step);
      set_gradients(cpu, step);
      gpu_optimizer.step();
      cpu_optimizer.step();
    }
    gpu_optimizer.wait();
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      const at::Tensor moved = cpu[i].parameter - start[i];
      const at::Tensor difference = gpu[i].parameter.cpu().to(at::kDouble) - cpu[i].parameter;
      const double relative = (difference.norm() / moved.norm()).item<double>();
      // Half precision products; the Gram form of the 4:1 shapes is the coarser one. Divided by their own size, entries
      // near 0 are as long as the others and have the wrong sign when they are rounded across it.
      const double hidden = name.starts_with("entries") ? 0.3 : 0.03;
      EXPECT_LT(relative, cpu[i].role == Role::kEmbedding ? 1e-4 : hidden) << name << " " << cpu[i].name;
    }
  }
}

class Watcher : public StepObserver {
 public:
  bool watches(int64_t step) const override { return step % 2 == 0; }
  void after_step(const BatchStep& batch) override {
    seen += static_cast<int64_t>(batch.blocks.size());
    EXPECT_TRUE(batch.direction.defined() && batch.momentum.defined() && batch.radius.defined());
  }
  int64_t seen = 0;
};

TEST_F(Fused, ObserversAndSmallScratchChangeNoBit) {
  for (const auto& [name, geometry] : fused_geometries()) {
    SCOPED_TRACE(name);
    const std::vector<Layer> plain = fused_layers();
    const std::vector<Layer> watched = fused_layers();
    const std::vector<Layer> chunked = fused_layers();
    Optimizer plain_optimizer(plain, geometry);
    Optimizer watched_optimizer(watched, geometry);
    Optimizer chunked_optimizer(chunked, geometry, {.scratch_bytes = 1 << 20});
    const auto watcher = std::make_shared<Watcher>();
    watched_optimizer.add_observer(watcher);
    for (uint64_t step = 0; step < 6; ++step) {
      for (const auto* layers : {&plain, &watched, &chunked}) set_gradients(*layers, step);
      for (auto* optimizer : {&plain_optimizer, &watched_optimizer, &chunked_optimizer}) optimizer->step();
    }
    EXPECT_EQ(watcher->seen, 3 * 6);
    EXPECT_TRUE(bitwise_equal(watched, copies_of(plain)));
    EXPECT_TRUE(bitwise_equal(chunked, copies_of(plain)));
  }
}

TEST_F(Fused, BadGradientLeavesSecondMoments) {
  const std::vector<Layer> layers = fused_layers();
  Optimizer optimizer(layers, presets::make("normuon"), {.non_finite = NonFinite::kSkip});
  OptimizerState before;
  for (uint64_t step = 0; step < 4; ++step) {
    set_gradients(layers, step);
    if (step == 3) at::Tensor(layers[0].parameter).mutable_grad()[0][0] = std::nanf("");
    if (step == 3) before = optimizer.state();
    optimizer.step();
  }
  const OptimizerState after = optimizer.state();
  EXPECT_TRUE(before.tensors.contains("normalize.second/layer0"));
  for (const auto& [name, tensor] : before.tensors) EXPECT_TRUE(tensor.equal(after.tensors.at(name))) << name;
}

TEST_F(Fused, BadGradientMovesNothingAndIsReportedLater) {
  for (const int before : {0, 1, 2, 3}) {  // the first runs are no graph yet
    for (const std::size_t bad : {std::size_t{1}, std::size_t{5}}) {
      const std::vector<Layer> layers = fused_layers();
      Optimizer optimizer(layers, presets::unscion());
      for (int step = 0; step < before; ++step) {
        set_gradients(layers, static_cast<uint64_t>(step));
        optimizer.step();
      }
      const OptimizerState state = optimizer.state();
      const std::vector<at::Tensor> kept = copies_of(layers);
      set_gradients(layers, 77);
      at::Tensor(layers[bad].parameter).mutable_grad()[17][3] = std::numeric_limits<float>::infinity();
      optimizer.step();
      EXPECT_EQ(optimizer.state().step, before);
      EXPECT_EQ(optimizer.steps_taken(), before);
      EXPECT_INPUT_ERROR(optimizer.wait(),
                         join("the gradient of layer 'layer", bad, "' holds NaN or Inf at step ", before));
      EXPECT_EQ(optimizer.steps_taken(), before);
      EXPECT_EQ(optimizer.effective_radii()[0].radius, before == 0 ? 0 : 0.018);
      EXPECT_TRUE(bitwise_equal(layers, kept));
      const OptimizerState after = optimizer.state();
      for (const auto& [name, tensor] : state.tensors) EXPECT_TRUE(tensor.equal(after.tensors.at(name))) << name;
      set_gradients(layers, 78);
      optimizer.step();
      optimizer.wait();
      EXPECT_EQ(optimizer.steps_taken(), before + 1);
      EXPECT_FALSE(layers[0].parameter.equal(kept[0]));
    }
  }
}

// With its LMO in another type and order than the kernels take.
class TransposedEuclidean : public Norm {
 public:
  std::string name() const override { return "transposed_euclidean"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return at::linalg_vector_norm(x, 2, {1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return compute_norm(g); }
  at::Tensor compute_lmo(const at::Tensor& g) const override {
    const at::Tensor turned = g.transpose(1, 2).to(at::kDouble).contiguous();
    return turned.div(compute_norm(g).view({-1, 1, 1})).neg().transpose(1, 2);
  }
};

TEST_F(Fused, CustomNormStepsAsOnTheCpu) {
  const Geometry geometry({{.norm = std::make_shared<TransposedEuclidean>(), .radius = 0.5}});
  const std::vector<Layer> gpu = fused_layers();
  std::vector<Layer> cpu = gpu;
  for (Layer& layer : cpu) layer.parameter = layer.parameter.cpu();
  Optimizer gpu_optimizer(gpu, geometry), cpu_optimizer(cpu, geometry);
  set_gradients(gpu, 1);
  set_gradients(cpu, 1);
  for (auto* optimizer : {&gpu_optimizer, &cpu_optimizer}) optimizer->step();
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_TRUE(gpu[i].parameter.cpu().allclose(cpu[i].parameter, 1e-5, 1e-7)) << cpu[i].name;
}

TEST_F(Fused, MoreMatricesThanOneLaunchHolds) {
  const at::Tensor stack = random_tensor({33000, 16, 16}, 3, at::kFloat).cuda();
  const std::vector<Layer> layers{{"experts.weight", stack.clone(), Role::kHidden}};
  Optimizer optimizer(layers, presets::unscion());
  at::Tensor(layers[0].parameter).mutable_grad() = stack;
  optimizer.step();
  optimizer.wait();
  const at::Tensor moved = (layers[0].parameter - stack).flatten(1).norm(2, 1);
  EXPECT_GT(moved.min().item<float>(), 0.5F * moved.max().item<float>());
}

TEST_F(Fused, VerdictAfterLoadStateBelongsToTheNextStep) {
  const std::vector<Layer> layers = fused_layers();
  Optimizer optimizer(layers, presets::unscion());
  set_gradients(layers, 1);
  optimizer.step();
  optimizer.wait();
  const OptimizerState state = optimizer.state();
  const at::Tensor busy = at::ones({8192, 8192}, layers[0].parameter.options());
  const at::Tensor bad = at::full_like(layers[0].parameter, std::numeric_limits<float>::infinity());
  for (int i = 0; i < 20; ++i) (void)at::mm(busy, busy);  // the GPU is behind the host
  optimizer.step();
  optimizer.load_state(state);
  at::Tensor(layers[0].parameter).mutable_grad() = bad;
  optimizer.step();
  EXPECT_INPUT_ERROR(optimizer.wait(), "the gradient of layer 'layer0' holds NaN or Inf");
}

TEST_F(Fused, BadGradientIsSkippedByOption) {
  const std::vector<Layer> layers = fused_layers();
  Optimizer optimizer(layers, presets::unscion(), {.non_finite = NonFinite::kSkip});
  for (uint64_t step = 0; step < 4; ++step) {
    set_gradients(layers, step);
    if (step % 2 == 0) at::Tensor(layers[0].parameter).mutable_grad()[0][0] = std::nanf("");
    optimizer.step();
  }
  optimizer.wait();
  EXPECT_EQ(optimizer.steps_taken(), 2);
  EXPECT_EQ(optimizer.steps_skipped(), 2);
}

}  // namespace
}  // namespace gluon
