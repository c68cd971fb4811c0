// Bad input to the optimizer: one clear sentence, and nothing has moved.

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

const Geometry kRows({{.norm = "rows", .radius = 0.1}});

TEST(OptimizerInput, NonFiniteGradientChangesNothing) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    auto layers = transformer_layers();
    Optimizer optimizer(layers, kRows);
    train(optimizer, layers);
    const auto before = copies_of(layers);
    const OptimizerState state = optimizer.state();
    quadratic_loss(layers);
    optimizer.set_radius_multiplier(2);  // shows in the radii of steps that happened
    layers[4].parameter.mutable_grad()[1][2][3] = bad;
    EXPECT_INPUT_ERROR(optimizer.step(), "the gradient of layer 'experts.weight' holds NaN or Inf at step 1");
    EXPECT_TRUE(bitwise_equal(layers, before));
    EXPECT_EQ(optimizer.steps_taken(), 1);
    for (const LayerRadius& entry : optimizer.effective_radii()) EXPECT_DOUBLE_EQ(entry.radius, 0.1);
    for (const auto& [name, tensor] : optimizer.state().tensors) EXPECT_TRUE(tensor.equal(state.tensors.at(name)));
  }
}

TEST(OptimizerInput, SkippedStepsAreCounted) {
  auto layers = transformer_layers();
  const auto start = copies_of(layers);
  Optimizer optimizer(layers, kRows, {.non_finite = NonFinite::kSkip});
  quadratic_loss(layers);
  layers[0].parameter.mutable_grad()[0][0] = std::numeric_limits<double>::quiet_NaN();
  optimizer.step();
  EXPECT_TRUE(bitwise_equal(layers, start));
  EXPECT_EQ(optimizer.steps_skipped(), 1);
  EXPECT_EQ(optimizer.steps_taken(), 0);
  train(optimizer, layers);
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

TEST(OptimizerInput, LayersWithoutGradientAreSkippedAndReportedOnce) {
  auto layers = transformer_layers();
  const auto start = copies_of(layers);
  std::vector<std::string> warnings;
  Optimizer optimizer(layers, presets::unscion(), {.warn = [&](const std::string& text) { warnings.push_back(text); }});
  for (int step = 0; step < 3; ++step) {
    quadratic_loss(layers);
    layers[2].parameter.mutable_grad() = at::Tensor();
    optimizer.step();
  }
  EXPECT_EQ(warnings, (std::vector<std::string>{"layer 'blocks.0.proj.weight' has no gradient; it is skipped"}));
  EXPECT_TRUE(layers[2].parameter.equal(start[2]));
  EXPECT_FALSE(layers[3].parameter.equal(start[3]));
}

TEST(OptimizerInput, ChangedParametersAndUnlikeGradientsAreRejected) {
  std::vector<Layer> layers{{"w", at::randn({3, 4})}};
  Optimizer optimizer(layers, kRows);
  at::Tensor& w = layers[0].parameter;
  w.mutable_grad() = at::randn({3, 4}).to_sparse();
  EXPECT_INPUT_ERROR(optimizer.step(),
                     "layer 'w' needs a gradient like itself, Strided Float [3, 4] on cpu, got Sparse");
  EXPECT_EQ(optimizer.steps_taken(), 0);
  w.mutable_grad() = at::ones({3, 4});
  optimizer.step();
  w.set_data(at::randn({3, 5}));
  EXPECT_INPUT_ERROR(optimizer.step(), "layer 'w' was [3, 4] Float on cpu at the start and is now [3, 5] Float on cpu");
  w.set_data(at::randn({3, 4}, at::kDouble));
  EXPECT_INPUT_ERROR(optimizer.step(),
                     "layer 'w' was [3, 4] Float on cpu at the start and is now [3, 4] Double on cpu");
}

TEST(OptimizerInput, BadLayersAreRejected) {
  const at::Tensor w = at::randn({3, 4});
  EXPECT_INPUT_ERROR(Optimizer({}, kRows), "expected at least one layer, got none");
  EXPECT_INPUT_ERROR(Optimizer({{"a", w}, {"a", at::randn({2, 2})}}, kRows), "two layers are called 'a'");
  EXPECT_INPUT_ERROR(Optimizer({{"a", w}, {"b", w}}, kRows), "layers 'a' and 'b' share one parameter");
  EXPECT_INPUT_ERROR(Optimizer({{"a", at::Tensor()}}, kRows), "layer 'a' has no parameter");
  EXPECT_INPUT_ERROR(Optimizer({{"a", at::ones({2, 2}, at::kLong)}}, kRows),
                     "layer 'a' must be a dense floating point tensor, got Long");
  EXPECT_INPUT_ERROR(Optimizer({{"a", w.to_sparse()}}, kRows),
                     "must be a dense floating point tensor, got Float Sparse");
  EXPECT_INPUT_ERROR(Optimizer({{"a", at::randn({0, 4})}}, kRows), "layer 'a' has no entries, shape [0, 4]");
  EXPECT_INPUT_ERROR(Optimizer({{"a", at::randn({4})}}, kRows), "a hidden layer is a matrix (..., m, n), got [4]");
}

TEST(OptimizerInput, BadOptionsAreRejected) {
  const std::vector<Layer> layers{{"w", at::randn({3, 4})}};
  EXPECT_INPUT_ERROR(Optimizer(layers, kRows, {.momentum = 1.5}), "beta must be in [0, 1), got 1.5");
  EXPECT_INPUT_ERROR(Optimizer(layers, kRows, {.scratch_bytes = 0}), "scratch_bytes must be >= 1, got 0");
  EXPECT_INPUT_ERROR(Optimizer(layers, kRows, {.adamw = {.beta1 = 1}}), "AdamW: beta1 must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(Optimizer(layers, Geometry({{.norm = "spectral"}}), {.orthogonalizer = "qr"}), "qr");
  EXPECT_INPUT_ERROR(Optimizer(layers, Geometry({{.norm = "adamw", .radius = power_radius(1)}})),
                     "AdamW needs a constant learning rate for layer 'w', got power(1)");
  EXPECT_INPUT_ERROR(Optimizer(layers, Geometry({{.norm = "rows", .radius = 3, .ball = 2.0}})),
                     "radius 3 of rule '*' must not exceed its ball 2");
  EXPECT_NO_THROW(Optimizer(layers, Geometry({{.norm = "rows", .radius = 2, .ball = 2.0}})));
  EXPECT_NO_THROW(Optimizer(layers, kRows, {.scratch_bytes = 1}));
}

TEST(OptimizerInput, BadSettingsAreRejected) {
  const std::vector<Layer> layers{{"w", at::randn({3, 4})}};
  Optimizer optimizer(layers, kRows);
  EXPECT_INPUT_ERROR(optimizer.set_radius_multiplier(-1), "radius multiplier must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(optimizer.set_radius_multiplier(INFINITY), "radius multiplier must be >= 0 and finite, got inf");
  EXPECT_INPUT_ERROR(optimizer.set_group_radius_multiplier(0, -1), "radius multiplier must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(optimizer.set_group_beta(0, 1), "beta must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(Optimizer(layers, kRows, quiet(Momentum::none())).set_group_beta(0, 0.5),
                     "none has no beta to change");
  EXPECT_INPUT_ERROR(optimizer.add_observer(nullptr), "expected an observer, got none");
}

TEST(OptimizerInput, MismatchedStateChangesNothing) {
  auto layers = transformer_layers();
  Optimizer optimizer(layers, presets::muon());
  train(optimizer, layers);
  const OptimizerState good = optimizer.state();
  const auto expect_refused = [&](void (*change)(OptimizerState&), const char* message) {
    OptimizerState state = good;
    change(state);
    EXPECT_INPUT_ERROR(optimizer.load_state(state), message);
  };
  expect_refused([](auto& state) { state.version = 2; }, "version 2 is not one of 1..1");
  expect_refused([](auto& state) { state.version = 0; }, "version 0 is not one of 1..1");
  expect_refused([](auto& state) { state.step = -1; }, "step must be in 0..9007199254740992, got -1");
  expect_refused([](auto& state) { state.step = std::numeric_limits<int64_t>::max(); }, "step must be in 0..");
  expect_refused(
      [](auto& state) {
        state.tensors["momentum/experts.weight"] = at::zeros({3, 6, 12}, at::kInt);
      },
      "'momentum/experts.weight' must be floating point, got Int");
  for (const double steps : {-1.0, 1e300, std::nan(""), 0.5}) {
    OptimizerState state = good;
    state.tensors["adamw.steps/ln.weight"] = at::scalar_tensor(steps, at::kDouble);
    EXPECT_INPUT_ERROR(optimizer.load_state(state), "'adamw.steps/ln.weight' must be a whole number in 0..");
  }
  expect_refused([](auto& state) { state.tensors.erase("momentum/experts.weight"); },
                 "'momentum/experts.weight' is missing");
  expect_refused([](auto& state) { state.tensors["momentum/experts.weight"] = at::zeros({7}); },
                 "'momentum/experts.weight' has shape [7], expected [3, 6, 12]");
  expect_refused([](auto& state) { state.tensors["adamw.first/ln.weight"] = at::zeros({7}); },
                 "'adamw.first/ln.weight' has shape [7], expected [6]");
  expect_refused([](auto& state) { state.tensors["adamw.steps/ln.weight"] = at::scalar_tensor(-1, at::kLong); },
                 "'adamw.steps/ln.weight' must be a whole number in 0..9007199254740992, got -1");
  expect_refused([](auto& state) { state.tensors["momentum/other"] = at::zeros({7}); },
                 "'momentum/other' belongs to no layer of this optimizer");
  for (const auto& [name, tensor] : optimizer.state().tensors) EXPECT_TRUE(tensor.equal(good.tensors.at(name)));
}

TEST(OptimizerInput, FirstLayerWithABadGradientIsNamed) {
  auto layers = transformer_layers();
  Optimizer optimizer(layers, kRows);
  quadratic_loss(layers);
  for (const std::size_t i : {2, 3}) layers[i].parameter.mutable_grad()[1][1] = INFINITY;
  EXPECT_INPUT_ERROR(optimizer.step(), "the gradient of layer 'blocks.0.proj.weight' holds NaN or Inf");
}

TEST(OptimizerInput, WarningsGoToTheLogByDefault) {
  std::vector<Layer> layers{{"w", at::ones({2, 2})}};
  Optimizer optimizer(layers, kRows);
  testing::internal::CaptureStderr();
  optimizer.step();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gluon: layer 'w' has no gradient; it is skipped\n");
}

}  // namespace
}  // namespace gluon
