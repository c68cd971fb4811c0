// Cautious and scheduled decay in the optimizer's steps.

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

constexpr double kRadius = 0.05, kWeight = 0.3;

void set_gradient(Layer& layer, int step) {
  layer.parameter.mutable_grad() =
      random_tensor(layer.parameter.sizes(), 50 + static_cast<uint64_t>(step), layer.parameter.scalar_type());
}

double schedule(int step) { return (10. - step) / 10; }

// The paper's algorithm 1, x <- x - t (u + w 1(u x >= 0) x), entry by entry.
at::Tensor stepped(const at::Tensor& x, const at::Tensor& u, double t, double weight, bool cautious) {
  at::Tensor next = x.clone();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double entry = x.view(-1)[i].item<double>(), update = u.reshape(-1)[i].item<double>();
    const bool decays = !cautious || update * entry >= 0;
    next.view(-1)[i] = entry - t * (update + (decays ? weight * entry : 0));
  }
  return next;
}

TEST(DecayStep, IsThePapersFormulaOverManySteps) {
  for (const bool cautious : {true, false}) {
    for (const char* suffix : {")", ",linear(10,10))"}) {
      const bool scheduled = *suffix == ',';
      const std::string name = join(cautious ? "cautious(" : "decoupled(", kWeight, suffix);
      std::vector<Layer> layers{{"x", random_tensor({5, 7}, 1, at::kDouble)}};
      at::Tensor expected = layers[0].parameter.clone();
      OptimizerOptions options = quiet(Momentum::none());
      options.schedule = Schedule::warmup(4);  // multiplies the radius, and with it the decay
      Optimizer optimizer(layers, Geometry({{.norm = "spectral", .radius = kRadius, .decay = name}}), options);
      for (int step = 0; step < 10; ++step) {
        set_gradient(layers[0], step);
        const at::Tensor u = -make_norm("spectral(svd)")->lmo(layers[0].parameter.grad().unsqueeze(0))[0];
        const double t = kRadius * std::min(1., (step + 1) / 4.);
        expected = stepped(expected, u, t, scheduled ? kWeight * schedule(step) : kWeight, cautious);
        optimizer.step();
        EXPECT_TRUE(layers[0].parameter.allclose(expected, 1e-12, 1e-14)) << name << ' ' << step;
      }
    }
  }
}

TEST(DecayStep, AdamWDecaysInTheSameWays) {
  for (const char* name : {"0.3", "cautious(0.3)", "cautious(0.3,linear(10,10))", "decoupled(0.3,linear(10,10))"}) {
    const std::string text = name;
    std::vector<Layer> layers{{"x", random_tensor({5, 7}, 1, at::kDouble)}};
    at::Tensor expected = layers[0].parameter.clone();
    at::Tensor first = at::zeros_like(expected), second = at::zeros_like(expected);
    Optimizer optimizer(layers, Geometry({{.norm = "adamw", .radius = kRadius, .decay = text}}), quiet());
    for (int step = 0; step < 10; ++step) {
      set_gradient(layers[0], step);
      const at::Tensor& g = layers[0].parameter.grad();
      first = 0.9 * first + 0.1 * g;
      second = 0.95 * second + 0.05 * g * g;
      const at::Tensor u =
          first / (1 - std::pow(0.9, step + 1)) / ((second / (1 - std::pow(0.95, step + 1))).sqrt() + 1e-8);
      const double weight = text.find("linear") == std::string::npos ? kWeight : kWeight * schedule(step);
      expected = stepped(expected, u, kRadius, weight, text.starts_with("cautious"));
      optimizer.step();
      EXPECT_TRUE(layers[0].parameter.allclose(expected, 1e-12, 1e-14)) << name << ' ' << step;
    }
  }
}

// 1 - 2^-8 is the next below 1 in bfloat16: neither 0.0015 nor 0.001 reaches it alone.
TEST(DecayStep, DecayAndStepAreRoundedOnceInHalfPrecision) {
  for (const char* norm : {"max_entry", "adamw"}) {
    std::vector<Layer> layers{{"x", at::ones({2, 2}, at::kBFloat16)}};
    Optimizer optimizer(layers, Geometry({{.norm = norm, .radius = 0.001, .decay = "cautious(1.5)"}}), quiet());
    layers[0].parameter.mutable_grad() = at::tensor({1.f, -1.f, 1.f, -1.f}).view({2, 2}).to(at::kBFloat16);
    optimizer.step();
    const at::Tensor expected = at::tensor({1 - 0x1p-8f, 1.f, 1 - 0x1p-8f, 1.f}).view({2, 2});
    EXPECT_TRUE(layers[0].parameter.to(at::kFloat).equal(expected)) << norm << layers[0].parameter;
  }
}

TEST(DecayStep, FollowsTheNormalisedHeading) {
  std::vector<Layer> layers{{"x", random_tensor({5, 7}, 1, at::kDouble)}};
  const at::Tensor start = layers[0].parameter.clone();
  Optimizer optimizer(
      layers,
      Geometry({{.norm = "spectral", .normalize = "adamuon(0.9)", .radius = kRadius, .decay = "cautious(0.3)"}},
               Momentum::none()),
      quiet());
  set_gradient(layers[0], 0);
  optimizer.step();
  // After one step every entry has the same size: sqrt(5) over the root of 35 entries.
  const at::Tensor o = make_norm("spectral(svd)")->lmo(layers[0].parameter.grad().unsqueeze(0))[0];
  EXPECT_TRUE(
      layers[0].parameter.allclose(stepped(start, -o.sign() * std::sqrt(5. / 35), kRadius, kWeight, true), 1e-10));
}

}  // namespace
}  // namespace gluon
