#include "gluon/update/adamw.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(AdamW, ThreeStepsOfTheFormula) {
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3};
  const double rate = 0.1, decay = 0.5;
  Layer layer{"w", at::full({2}, 3.0, at::kDouble), Role::kVector};
  AdamW adamw(options);
  adamw.add_layer(layer, rate, decay);

  double x = 3, m = 0, v = 0;
  int j = 0;
  for (const double g : {2.0, -1.0, 0.5}) {
    layer.parameter.mutable_grad() = at::full({2}, g, at::kDouble);
    const double multiplier = 1.0 / (1 + j);
    adamw.step({.multipliers = {multiplier}});
    ++j;
    m = 0.8 * m + 0.2 * g;
    v = 0.9 * v + 0.1 * g * g;
    x = (1 - rate * multiplier * decay) * x -
        rate * multiplier * (m / (1 - std::pow(0.8, j))) / (std::sqrt(v / (1 - std::pow(0.9, j))) + 1e-3);
    EXPECT_NEAR(layer.parameter[1].item<double>(), x, 1e-12);
  }
}

TEST(AdamW, ClippingScalesTheStepNotTheGradients) {
  // The gradient (3, 0, 4) times `factor`, cut into layers of these sizes.
  const auto run = [](const std::vector<int64_t>& sizes, double clip, double factor) {
    const std::vector<at::Tensor> gradients =
        (at::tensor({3.0, 0.0, 4.0}, at::kDouble) * factor).split_with_sizes(sizes);
    std::vector<at::Tensor> parameters;
    AdamW adamw({.eps = 1, .clip = clip});  // a large eps makes the size of the gradient count
    for (const at::Tensor& gradient : gradients) {
      parameters.push_back(at::zeros_like(gradient));
      parameters.back().mutable_grad() = gradient.clone();
      adamw.add_layer({std::to_string(parameters.size()), parameters.back(), Role::kVector}, 0.1, 0);
    }
    adamw.step({});
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(parameters[i].grad().equal(gradients[i]));
    return at::cat(parameters);
  };
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 1}, std::vector<int64_t>{3}}) {
    // |(3, 0, 4)| = 5, and 1e-6 as in torch's clip_grad_norm_
    EXPECT_TRUE(run(sizes, 2, 1).allclose(run(sizes, 0, 2 / (5 + 1e-6)), 1e-12, 1e-12));
    EXPECT_TRUE(run(sizes, 5.1, 1).equal(run(sizes, 0, 1)));
  }
  EXPECT_INPUT_ERROR(AdamW({.clip = -1}), "clip must be >= 0 and finite, got -1");
}

TEST(AdamW, BiasCorrectionCountsStepsPerLayer) {
  Layer layer{"w", at::zeros({3}, at::kDouble), Role::kVector};
  AdamW adamw({});
  adamw.add_layer(layer, 0.01, 0);
  for (int skipped = 0; skipped < 5; ++skipped) adamw.step({});
  EXPECT_TRUE(layer.parameter.eq(0).all().item<bool>());
  layer.parameter.mutable_grad() = at::tensor({5.0, -0.2, 100.0}, at::kDouble);
  adamw.step({});  // the first step of every entry is its sign times the rate
  EXPECT_TRUE(layer.parameter.allclose(at::tensor({-0.01, 0.01, -0.01}, at::kDouble), 0, 1e-9)) << layer.parameter;
}

// Each of both is in range; no step throws when their product is not.
TEST(AdamW, ARateTimesADecayBeyondFloat32Diverges) {
  for (const char* decay : {"1e30", "cautious(1e30)"}) {
    const Layer layer{"w", at::ones({3}, at::kFloat)};
    AdamW adamw({});
    adamw.add_layer(layer, 3e38, Decay(decay));
    for (int step = 0; step < 2; ++step) {
      at::Tensor(layer.parameter).mutable_grad() = at::ones({3}, at::kFloat);
      adamw.step({});
    }
    EXPECT_FALSE(layer.parameter.isfinite().any().item<bool>()) << decay;
  }
}

TEST(AdamW, LimitsOfItsOptions) {
  EXPECT_NO_THROW((AdamWOptions{.beta1 = 0, .beta2 = 0, .clip = 0}.validate()));
  EXPECT_INPUT_ERROR(AdamWOptions{.beta1 = -0.5}.validate(), "beta1 must be in [0, 1), got -0.5");
  EXPECT_INPUT_ERROR(AdamWOptions{.beta1 = 1}.validate(), "beta1 must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(AdamWOptions{.beta2 = -0.5}.validate(), "beta2 must be in [0, 1), got -0.5");
  EXPECT_INPUT_ERROR(AdamWOptions{.beta2 = 1}.validate(), "beta2 must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(AdamWOptions{.eps = 0}.validate(), "eps must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(AdamWOptions{.eps = INFINITY}.validate(), "eps must be > 0 and finite, got inf");
  EXPECT_INPUT_ERROR(AdamWOptions{.clip = INFINITY}.validate(), "clip must be >= 0 and finite, got inf");
}

}  // namespace
}  // namespace gluon
