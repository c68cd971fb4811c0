// The loop against steps written out by hand.

#include "gluon/update/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "gluon/geometry/presets.h"
#include "gluon/plan/step_plan.h"
#include "gluon/update/initialize.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(actual.allclose(expected, 1e-10, 1e-12)) << (actual - expected).abs().max();
}

at::Tensor polar(const at::Tensor& g) { return make_norm("spectral(svd)")->lmo(g.unsqueeze(0))[0]; }

using Radii = std::map<std::string, double>;
Radii radii_of(const Optimizer& optimizer) {
  Radii radii;
  for (const LayerRadius& entry : optimizer.effective_radii()) radii[entry.name] = entry.radius;
  return radii;
}

TEST(Optimizer, OneStepIsRadiusTimesLmoOfTheMomentum) {
  auto layers = transformer_layers();
  const auto start = copies_of(layers);
  Optimizer optimizer(layers, presets::unscion({.hidden = 0.1, .embedding = 0.5, .vector = 0.2}), quiet(0.9));
  train(optimizer, layers);

  const auto gradient = [&](std::size_t i) { return layers[i].parameter.grad(); };
  expect_close(layers[0].parameter, start[0] - 0.5 / 6 * gradient(0).sign());
  expect_close(layers[1].parameter, start[1] + 0.1 * std::sqrt(18.0 / 6) * polar(gradient(1)));
  expect_close(layers[4].parameter[2], start[4][2] + 0.1 * std::sqrt(6.0 / 12) * polar(gradient(4)[2]));
  expect_close(layers[5].parameter, start[5] - 0.2 * std::sqrt(6.0) * gradient(5) / gradient(5).norm());
  expect_close(layers[6].parameter, start[6] - 0.2 * gradient(6).sign());
}

// b <- beta b + g, X <- X - lr b is torch.optim.SGD; our momentum is (1 - beta) b.
TEST(Optimizer, SteepestDescentInTheEuclideanNormIsSgd) {
  constexpr double kRate = 0.05, kBeta = 0.9;
  const Geometry geometry({{.norm = "euclidean", .radius = steepest_radius(kRate / (1 - kBeta))}});
  for (std::vector<Layer> layers : {transformer_layers(), cnn_layers()}) {
    std::vector<at::Tensor> expected = copies_of(layers), buffers;
    for (const at::Tensor& start : expected) buffers.push_back(at::zeros_like(start));
    Optimizer optimizer(layers, geometry, quiet(Momentum::ema(kBeta)));
    for (int step = 0; step < 8; ++step) {
      train(optimizer, layers);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        buffers[i].mul_(kBeta).add_(layers[i].parameter.grad());
        expected[i].sub_(kRate * buffers[i]);
        expect_close(layers[i].parameter, expected[i]);
      }
    }
  }
}

TEST(Optimizer, ConvolutionsAreScaledByTheFlattenedView) {
  auto layers = cnn_layers();
  const auto start = copies_of(layers);
  Optimizer optimizer(layers, presets::unscion({.conv = 0.5}), quiet());
  train(optimizer, layers);
  const at::Tensor g = layers[0].parameter.grad().view({8, 27});
  const at::Tensor moved = polar(g).view({8, 3, 3, 3}) / (9 * std::sqrt(3.0 / 8));
  expect_close(layers[0].parameter, start[0] + 0.5 * moved);
  // Paper: the head moves by t / n sign, n = 8 here, t = 50 beside convolutions.
  expect_close(layers[3].parameter, start[3] - 100 * 0.5 / 8 * layers[3].parameter.grad().sign());
}

TEST(Optimizer, MomentumAccumulatesOverSteps) {
  std::vector<Layer> layers{{"x", at::zeros({1, 1}, at::kDouble)}};
  Optimizer optimizer(layers, Geometry({{.norm = "euclidean", .radius = 1}}), quiet(0.5));
  const auto step = [&](double g) {
    layers[0].parameter.mutable_grad() = at::full({1, 1}, g, at::kDouble);
    optimizer.step();
    return layers[0].parameter.item<double>();
  };
  EXPECT_EQ(step(4), -1);   // M = 2
  EXPECT_EQ(step(-1), -2);  // M = 0.5: the old momentum outweighs the new gradient
  EXPECT_EQ(step(-1), -1);  // M = -0.25
}

TEST(Optimizer, SplitBlocksAreSteppedAsSeparateMatrices) {
  for (const char* split : {"qkv", "rows:6,8,4", "columns:2"}) {
    auto layers = transformer_layers();
    const at::Tensor start = layers[1].parameter.clone();
    const Geometry geometry({{.pattern = "*.qkv.*", .norm = "spectral", .radius = 0.1, .split = split},
                             {.norm = "spectral", .radius = 0.1}},
                            Momentum::none());
    Optimizer optimizer(layers, geometry, quiet());
    train(optimizer, layers);  // vectors are matrices (C, 1) here, which the spectral norm takes too
    for (const Block& block : split_blocks(layers[1], split)) {
      const at::Tensor moved = 0.1 * polar(block.of(layers[1].parameter.grad()));
      expect_close(block.of(layers[1].parameter), block.of(start) + moved);
    }
  }
}

TEST(Optimizer, ConstrainedUpdateStaysInTheBall) {
  auto layers = transformer_layers();
  const Geometry geometry = presets::scion({.gamma = 0.1, .hidden = 2, .embedding = 3});
  Optimizer optimizer(layers, geometry, quiet());
  initialize(layers, geometry);
  train(optimizer, layers, 50);
  for (const StepPlan::Batch& batch : route(layers, geometry, {.orthogonalizer = "svd"}).batches) {
    for (const Block& block : batch.blocks) {
      const at::Tensor x = block.of(block.layer.parameter).reshape({1, block.shape.rows, block.shape.cols});
      EXPECT_LE(batch.norm->norm(x).item<double>(), *geometry.rules()[batch.rule].ball * (1 + 1e-9)) << block.name;
    }
  }
}

TEST(Optimizer, DefaultOrthogonalizerKeepsTheBallApproximately) {
  std::vector<Layer> layers{{"w", random_tensor({24, 24}, 1)}};
  const Geometry geometry({{.norm = "spectral", .radius = 0.5, .ball = 2.0}});
  initialize(layers, geometry);
  Optimizer optimizer(layers, geometry);
  for (int step = 0; step < 50; ++step) {
    layers[0].parameter.mutable_grad() = random_tensor({24, 24}, 2);
    optimizer.step();
  }
  EXPECT_LE(make_norm("spectral")->norm(layers[0].parameter.unsqueeze(0)).item<double>(),
            2 * 1.13);  // five steps end in 0.84..1.12
}

TEST(Optimizer, TenThousandStepsStayInTheBallAndInTheirMemory) {
  std::vector<Layer> layers{{"w", random_tensor({12, 20}, 1)}, {"v", random_tensor({6}, 2), Role::kVector}};
  const Geometry geometry({{.role = Role::kVector, .norm = "euclidean", .radius = 0.1, .ball = 1.0},
                           {.norm = "spectral(polar_express:8)", .radius = 0.1, .ball = 2.0}});
  initialize(layers, geometry);
  Optimizer optimizer(layers, geometry);
  const auto take = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      for (Layer& layer : layers) layer.parameter.mutable_grad() = random_tensor(layer.parameter.sizes(), step);
      optimizer.step();
    }
    std::ifstream pages("/proc/self/statm");
    int64_t all = 0, resident = 0;
    pages >> all >> resident;
    return resident;
  };
  const int64_t before = take(2000);
  [[maybe_unused]] const int64_t grown = take(8000) - before;
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
  EXPECT_LT(grown, 256) << "pages";
#endif
  EXPECT_EQ(optimizer.steps_taken(), 10000);
  EXPECT_LE(make_norm("spectral")->norm(layers[0].parameter.unsqueeze(0)).item<double>(), 2 * (1 + 1e-3));
  EXPECT_LE(layers[1].parameter.norm().item<double>(), 1 + 1e-5);
}

TEST(Optimizer, DecayAndBallShrinkTheWeights) {
  const auto expect_step = [](const Rule& rule, double multiplier, double shrink, double radius) {
    std::vector<Layer> layers{{"x", random_tensor({3, 4}, 1, at::kDouble)}};
    const at::Tensor start = layers[0].parameter.clone();
    Optimizer optimizer(layers, Geometry({rule}), quiet());
    optimizer.set_radius_multiplier(multiplier);
    train(optimizer, layers);
    expect_close(layers[0].parameter, shrink * start - radius * layers[0].parameter.grad().sign());
  };
  expect_step({.norm = "max_entry", .radius = 0.5, .decay = 0.1}, 1, 1 - 0.05, 0.5);
  expect_step({.norm = "max_entry", .radius = 0.5, .ball = 2.0}, 1, 0.75, 0.5);  // Scion with gamma = 1/4
  expect_step({.norm = "max_entry", .radius = 1, .ball = 2.0}, 100, 0, 2);       // the ball limits the radius
}

TEST(Optimizer, SchedulesAndMultipliersShowInTheEffectiveRadii) {
  std::vector<Layer> layers{{"x", at::ones({2, 2})}, {"y", at::ones({2})}};
  OptimizerOptions options = quiet();
  options.schedule = Schedule::warmup(4);
  Optimizer optimizer(
      layers, Geometry({{.pattern = "x", .norm = "rows", .radius = 0.5}, {.norm = "adamw", .radius = 0.25}}), options);
  train(optimizer, layers);
  optimizer.set_radius_multiplier(2);
  optimizer.step();
  EXPECT_EQ(radii_of(optimizer), (Radii{{"x", 0.5 * 2 * 0.5}, {"y", 0.25 * 2 * 0.5}}));
}

TEST(Optimizer, SmallScratchGivesTheSameBits) {
  std::vector<at::Tensor> expected;
  for (const int64_t scratch : {int64_t{256} << 20, int64_t{1}}) {
    auto layers = transformer_layers(at::kFloat);
    OptimizerOptions options = quiet(Momentum::nesterov(0.95));
    options.scratch_bytes = scratch;
    Optimizer optimizer(layers, presets::unscion(), options);
    train(optimizer, layers, 3);
    if (expected.empty()) expected = copies_of(layers);
    EXPECT_TRUE(bitwise_equal(layers, expected));
  }
}

TEST(Optimizer, NonContiguousParametersGetTheSameStep) {
  // channels_last memory: the same values in another order in memory
  std::vector<Layer> plain{{"conv", random_tensor({8, 4, 3, 3}, 1, at::kDouble), Role::kConv}};
  std::vector<Layer> last{{"conv", plain[0].parameter.contiguous(at::MemoryFormat::ChannelsLast), Role::kConv}};
  ASSERT_FALSE(last[0].parameter.is_contiguous());
  for (auto* layers : {&plain, &last}) {
    Optimizer optimizer(*layers, presets::unscion(), quiet());
    train(optimizer, *layers);
  }
  expect_close(last[0].parameter, plain[0].parameter);
}

TEST(Optimizer, HalfPrecisionParametersKeepFloatState) {
  for (const auto& [preset, type] :
       {std::pair{"unscion", at::kBFloat16}, {"adamw", at::kBFloat16}, {"unscion", at::kHalf}}) {
    std::vector<Layer> layers{{"x", random_tensor({8, 4}, 1).to(type)}};
    std::vector<Layer> exact{{"x", layers[0].parameter.to(at::kFloat)}};
    for (auto* model : {&layers, &exact}) {
      Optimizer optimizer(*model, presets::make(preset), quiet());
      optimizer.set_radius_multiplier(20);  // unscion moves much further than the tolerance below
      model->front().parameter.mutable_grad() = random_tensor({8, 4}, 2).to(model->front().parameter.scalar_type());
      optimizer.step();
      for (const auto& [name, tensor] : optimizer.state().tensors) {
        EXPECT_TRUE(tensor.scalar_type() == at::kFloat || tensor.dim() == 0) << name;
      }
    }
    EXPECT_EQ(layers[0].parameter.scalar_type(), type);
    EXPECT_TRUE(layers[0].parameter.to(at::kFloat).allclose(exact[0].parameter, 1e-2, 1e-2)) << preset;
  }
}

// Neighbours of 1 in bfloat16 are 1 - 2^-8 and 1 + 2^-7. The decay (0.0015) and the step (0.001) would each round back
// to 1; only their sum, rounded once, moves the weight.
TEST(Optimizer, DecayAndStepAreRoundedOnceInHalfPrecision) {
  for (const Geometry& geometry :
       {Geometry({{.norm = "max_entry", .radius = 0.001, .decay = 1.5}}), presets::adamw(0.001, 1.5)}) {
    std::vector<Layer> layers{{"x", at::ones({2, 2}, at::kBFloat16)}};
    Optimizer optimizer(layers, geometry);
    layers[0].parameter.mutable_grad() = at::ones({2, 2}, at::kBFloat16);
    optimizer.step();
    EXPECT_TRUE(layers[0].parameter.eq(1 - 0x1p-8).all().item<bool>()) << layers[0].parameter;
  }
}

TEST(Optimizer, EffectiveRadiiFollowTheLayers) {
  auto layers = transformer_layers();
  Optimizer optimizer(layers, presets::muon(), quiet());
  train(optimizer, layers);
  std::vector<std::string> names;
  for (const LayerRadius& entry : optimizer.effective_radii()) {
    names.push_back(entry.name);
    EXPECT_GT(entry.radius, 0) << entry.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"wte.weight", "blocks.0.qkv.weight", "blocks.0.proj.weight",
                                             "blocks.1.proj.weight", "experts.weight[0]", "experts.weight[1]",
                                             "experts.weight[2]", "ln.weight", "temperature"}));
}

TEST(Optimizer, BetaAloneKeepsNesterov) {
  const Optimizer optimizer(transformer_layers(), presets::muon(), quiet(0.8));
  EXPECT_EQ(optimizer.momentum().name(), "nesterov(0.8)");
}

TEST(Optimizer, GroupsHaveTheirOwnRadiusMultiplierAndBeta) {
  const auto step = [](double multiplier, double beta, int64_t group) {
    std::vector<Layer> layers{{"a", random_tensor({4, 3}, 1)},
                              {"b", random_tensor({4, 3}, 2), Role::kHidden, group},
                              {"c", random_tensor({3}, 3), Role::kVector, group}};
    Optimizer optimizer(
        layers,
        Geometry({{.role = Role::kVector, .norm = "adamw", .radius = 0.1}, {.norm = "max_entry", .radius = 0.5}}),
        quiet(0.9));
    optimizer.set_group_radius_multiplier(1, multiplier);
    optimizer.set_group_beta(1, beta);
    train(optimizer, layers, 3);
    return std::pair(copies_of(layers), radii_of(optimizer));
  };
  const auto [plain, plain_radii] = step(1, 0.9, 0);
  const auto [grouped, grouped_radii] = step(0.5, 0, 1);
  EXPECT_TRUE(grouped[0].equal(plain[0]));
  EXPECT_FALSE(grouped[1].equal(plain[1]));
  EXPECT_EQ(plain_radii, (Radii{{"a", 0.5}, {"b", 0.5}, {"c", 0.1}}));
  EXPECT_EQ(grouped_radii, (Radii{{"a", 0.5}, {"b", 0.25}, {"c", 0.05}}));
  // A group of its own with the same numbers changes no bit.
  const auto [apart, apart_radii] = step(1, 0.9, 1);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(apart[i].equal(plain[i])) << i;
}

TEST(Optimizer, ZeroGradientsMoveNothing) {
  for (const char* preset : {"muon", "unscion", "sign_descent", "normalized_descent", "sgd", "deterministic_gluon"}) {
    auto layers = transformer_layers();
    const auto start = copies_of(layers);
    Optimizer optimizer(layers, presets::make(preset), quiet());
    for (Layer& layer : layers) layer.parameter.mutable_grad() = at::zeros_like(layer.parameter);
    optimizer.step();
    EXPECT_TRUE(bitwise_equal(layers, start)) << preset;
  }
}

TEST(Optimizer, StateBytesCountMomentumAndAdamW) {
  std::vector<Layer> layers{{"w", at::ones({4, 3})}, {"v", at::ones({5}), Role::kVector}};
  EXPECT_EQ(Optimizer(layers, presets::muon(), quiet()).state_bytes(), (12 + 2 * 5) * 4);
  EXPECT_EQ(Optimizer(layers, presets::sign_descent(), quiet(Momentum::none())).state_bytes(), 0);
}

TEST(Optimizer, RadiusMultiplierZeroMovesNothing) {
  auto layers = transformer_layers();
  const auto start = copies_of(layers);
  Optimizer optimizer(layers, presets::muon(), quiet());
  optimizer.set_radius_multiplier(0);
  EXPECT_EQ(optimizer.radius_multiplier(), 0);
  train(optimizer, layers);
  EXPECT_TRUE(bitwise_equal(layers, start));
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

TEST(Optimizer, ZeroGradRemovesTheGradients) {
  auto layers = transformer_layers();
  Optimizer optimizer(layers, presets::unscion(), quiet());
  quadratic_loss(layers);
  optimizer.zero_grad();
  for (const Layer& layer : layers) EXPECT_FALSE(layer.parameter.grad().defined()) << layer.name;
}

}  // namespace
}  // namespace gluon
