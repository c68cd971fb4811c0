// Layers on spheres, against the formula in float64.

#include "gluon/update/sphere_step.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/plan/step_plan.h"
#include "gluon/update/initialize.h"
#include "gluon/update/plain_executor.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

constexpr double kEta = 0.1;

at::Tensor normalized(const at::Tensor& x) { return x / x.norm(); }

double length(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

double distance(const at::Tensor& a, const at::Tensor& b) { return length(a.to(at::kDouble) - b.to(at::kDouble)); }

Geometry on_spheres(const Sphere& sphere = {}) {
  return Geometry({{.role = Role::kConv, .norm = "scaled(sqrt(kernel*n/m),spectral)", .radius = kEta, .sphere = sphere},
                   {.role = Role::kHead, .norm = "scaled(n,max_entry)", .radius = kEta, .sphere = sphere},
                   {.norm = "scaled(sqrt(n/m),spectral)", .radius = kEta, .sphere = sphere}});
}

// Square, tall and wide, a row, a column, a stack of experts, a convolution, and one under another norm.
std::vector<Layer> make_layers(double scale = 1, at::ScalarType type = at::kFloat) {
  std::vector<Layer> layers{{"square", random_tensor({6, 6}, 1)},
                            {"tall", random_tensor({12, 6}, 2)},
                            {"row", random_tensor({1, 9}, 3)},
                            {"column", random_tensor({9, 1}, 4)},
                            {"experts", random_tensor({3, 6, 12}, 5)},
                            {"conv", random_tensor({8, 3, 3, 3}, 6), Role::kConv},
                            {"wide", random_tensor({4, 30}, 7), Role::kHead}};
  for (Layer& layer : layers) layer.parameter = (layer.parameter * scale).to(type);
  return layers;
}

// That of a step for every layer; all runs get the same.
void set_gradients(std::vector<Layer>& layers, int step) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    at::Tensor& x = layers[i].parameter;
    x.mutable_grad() = random_tensor(x.sizes(), 1000 + 100 * static_cast<uint64_t>(step) + i).to(x.scalar_type());
  }
}

void take_steps(Optimizer& optimizer, std::vector<Layer>& layers, int steps) {
  for (int step = 0; step < steps; ++step) {
    set_gradients(layers, step);
    optimizer.step();
  }
}

std::vector<StepPlan::Batch> batches(const std::vector<Layer>& layers, const Geometry& geometry) {
  return route(layers, geometry, {.orthogonalizer = "svd"}).batches;
}

// The formula in float64 for one matrix, with momentum ema(0.5).
struct Reference {
  Reference(Block its_block, NormPtr its_norm, double its_radius)
      : block(std::move(its_block)), norm(std::move(its_norm)), radius(its_radius) {
    x = matrix(block.layer.parameter);
    momentum = at::zeros_like(x);
  }

  at::Tensor matrix(const at::Tensor& whole) const {
    return block.of(whole).to(at::kDouble).reshape({block.shape.rows, block.shape.cols}).clone();
  }

  void step() {
    momentum = 0.5 * momentum + 0.5 * matrix(block.layer.parameter.grad());
    x = radius * normalized(normalized(x) + kEta * normalized(norm->lmo(momentum.unsqueeze(0))[0]));
  }

  Block block;
  NormPtr norm;
  double radius;
  at::Tensor x, momentum;
};

void expect_formula(const Geometry& geometry, std::vector<Layer> layers, std::optional<double> radius) {
  std::vector<Reference> references;
  for (const StepPlan::Batch& batch : batches(layers, geometry)) {
    for (const Block& block : batch.blocks) {
      const double own = batch.norm->lmo_length(block.shape.rows, block.shape.cols);
      references.emplace_back(block, batch.norm, radius.value_or(own));
    }
  }
  Optimizer optimizer(layers, geometry, quiet(0.5));
  for (int step = 0; step < 20; ++step) {
    set_gradients(layers, step);
    optimizer.step();
    for (Reference& reference : references) {
      reference.step();
      const at::Tensor x = reference.matrix(reference.block.layer.parameter);
      EXPECT_NEAR(length(x) / reference.radius, 1, 2e-7) << reference.block.name << " step " << step;
      EXPECT_LT(distance(x, reference.x), 1e-5 * reference.radius) << reference.block.name << " step " << step;
    }
  }
  for (const LayerRadius& entry : optimizer.effective_radii()) EXPECT_FLOAT_EQ(entry.radius, kEta) << entry.name;
}

TEST(SphereStep, IsTheFormulaOverManySteps) {
  expect_formula(on_spheres(), make_layers(), std::nullopt);
  expect_formula(on_spheres(2.5), make_layers(), 2.5);
}

TEST(SphereStep, EveryBlockHasItsOwnSphere) {
  const std::vector<Layer> layers{{"qkv", random_tensor({18, 6}, 1)}, {"q", random_tensor({12, 18}, 2)}};
  for (const char* split : {"rows:3", "columns:2", "rows:2,4,6"}) {
    const bool sizes = std::string(split).ends_with("6");
    std::vector<Layer> some{layers[sizes ? 1 : 0]};
    some[0].parameter = some[0].parameter.clone();
    const Geometry geometry(
        {{.norm = "scaled(sqrt(n/m),spectral)", .radius = kEta, .split = split, .sphere = Sphere()}});
    expect_formula(geometry, some, std::nullopt);
  }
}

TEST(SphereStep, ItsOwnRadiusIsTheLengthOfTheLmo) {
  std::vector<Layer> layers{{"w", random_tensor({12, 3}, 1)}};
  Optimizer optimizer(layers, on_spheres(), quiet());
  take_steps(optimizer, layers, 1);
  EXPECT_NEAR(length(layers[0].parameter), std::sqrt(3.0) * std::sqrt(12.0 / 3), 1e-5);
}

// A step of radius eta in the layer's norm before the matrix is brought back.
TEST(SphereStep, RelativeStepIsTheRadiusInTheLayersNorm) {
  for (const double own : {1.0, 2.0}) {
    std::vector<Layer> layers{{"w", random_tensor({8, 5}, 1, at::kDouble)}};
    const NormPtr norm = make_norm("scaled(2,spectral(svd))");
    const double length_of_lmo = norm->lmo_length(8, 5);
    const Geometry geometry({{.norm = norm, .radius = kEta, .sphere = own * length_of_lmo}}, Momentum::none());
    start_on_spheres(layers, geometry);
    const at::Tensor start = layers[0].parameter.clone();
    Optimizer optimizer(layers, geometry, quiet());
    train(optimizer, layers);
    const at::Tensor u = norm->lmo(layers[0].parameter.grad().unsqueeze(0))[0];
    const double t = kEta * own, q = length(start + t * u) / length(start);
    EXPECT_LT(distance(layers[0].parameter, (start + t * u) / q), 1e-12);
    const auto size = [&](const at::Tensor& x) { return norm->norm(x.unsqueeze(0)).item<double>(); };
    EXPECT_LE(size(layers[0].parameter - start), (t + std::abs(q - 1) * size(start)) / q * (1 + 1e-12));
  }
}

// The bounds of the header, at the angles where they are reached and at random ones.
TEST(SphereStep, FrobeniusLengthOfAStepIsBounded) {
  for (const double eta : {0.05, 0.5, 1.0}) {
    const double worst = eta * std::sqrt(2 / (1 + std::sqrt(1 - eta * eta)));
    double largest = 0;
    for (int i = 0; i < 200; ++i) {
      // In the plane of X = (1, 0): U at the angle of cosine a.
      const double a = i == 0 ? -eta : std::cos(i * M_PI / 200);
      std::vector<Layer> layers{{"x", at::tensor({1.0, 0.0}, at::kDouble).view({2, 1})}};
      Optimizer optimizer(layers, Geometry({{.norm = "euclidean", .radius = eta, .sphere = Sphere()}}), quiet());
      layers[0].parameter.mutable_grad() = at::tensor({-a, -std::sqrt(1 - a * a)}, at::kDouble).view({2, 1});
      optimizer.step();
      const double moved = distance(layers[0].parameter, at::tensor({1.0, 0.0}, at::kDouble).view({2, 1}));
      const double q = std::sqrt(1 + 2 * a * eta + eta * eta);
      EXPECT_LE(moved, (q >= 1 ? eta : worst) * (1 + 1e-12)) << eta << ' ' << a;
      largest = std::max(largest, moved);
    }
    EXPECT_NEAR(largest, worst, eta < 1 ? 1e-9 : 0.01);
  }
}

TEST(SphereStep, ScaleOfTheStartDoesNotMatter) {
  std::vector<at::Tensor> expected;
  for (const double scale : {1.0, 0.01, 100.0, 1e-30, 1e30}) {
    std::vector<Layer> layers = make_layers(scale);
    Optimizer optimizer(layers, on_spheres(), quiet());
    take_steps(optimizer, layers, 10);
    if (expected.empty()) expected = copies_of(layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      EXPECT_LT(distance(layers[i].parameter, expected[i]), 2e-6 * length(expected[i])) << layers[i].name << scale;
    }
  }
}

TEST(SphereStep, ZerosStepOntoTheSphereAlongTheLmo) {
  std::vector<Layer> layers = make_layers(0);
  Optimizer optimizer(layers, on_spheres(), quiet());
  optimizer.set_radius_multiplier(1e-6);  // the relative step does not matter
  take_steps(optimizer, layers, 1);
  for (const StepPlan::Batch& batch : batches(layers, on_spheres())) {
    for (const Block& block : batch.blocks) {
      const Reference at(block, batch.norm, batch.norm->lmo_length(block.shape.rows, block.shape.cols));
      const at::Tensor u = batch.norm->lmo(at.matrix(block.layer.parameter.grad()).unsqueeze(0))[0];
      EXPECT_LT(distance(at.x, at.radius * normalized(u)), 1e-6 * at.radius) << block.name;
    }
  }
}

TEST(SphereStep, ZeroMomentumAndZeroRadiusMoveNothing) {
  for (const double scale : {1.0, 0.0}) {
    std::vector<Layer> layers = make_layers(scale);
    const auto start = copies_of(layers);
    Optimizer optimizer(layers, on_spheres(), quiet());
    for (Layer& layer : layers) layer.parameter.mutable_grad() = at::zeros_like(layer.parameter);
    optimizer.step();
    EXPECT_TRUE(bitwise_equal(layers, start));
    optimizer.set_radius_multiplier(0);
    take_steps(optimizer, layers, 1);
    EXPECT_TRUE(bitwise_equal(layers, start));
  }
}

TEST(SphereStep, StepIntoTheCentreMovesNothing) {
  std::vector<Layer> layers{{"x", at::full({1, 1}, 2.0)}};
  Optimizer optimizer(layers, Geometry({{.norm = "euclidean", .radius = 1, .sphere = 2.0}}), quiet());
  const auto step = [&](double gradient) {
    layers[0].parameter.mutable_grad() = at::full({1, 1}, gradient);
    optimizer.step();
    return layers[0].parameter.item<double>();
  };
  EXPECT_EQ(step(1), 2);  // 1 - 1 = 0
  optimizer.set_radius_multiplier(1.5);
  EXPECT_EQ(step(1), -2);  // 1 - 1.5 < 0

  // Rounding leaves X + t U a little away from zero, in any direction.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<Layer> opposite{{"x", random_tensor({7, 1}, seed)}};
    const Geometry geometry({{.norm = "euclidean", .radius = 1, .sphere = Sphere()}}, Momentum::none());
    start_on_spheres(opposite, geometry);
    const auto start = copies_of(opposite);
    Optimizer against(opposite, geometry, quiet());
    opposite[0].parameter.mutable_grad() = start[0].clone();
    against.step();
    EXPECT_TRUE(bitwise_equal(opposite, start)) << seed;
  }
}

TEST(SphereStep, HalfPrecisionStaysOnTheSphereToItsRounding) {
  std::vector<Layer> layers = make_layers(1, at::kBFloat16);
  Optimizer optimizer(layers, on_spheres(), quiet());
  take_steps(optimizer, layers, 20);
  for (const StepPlan::Batch& batch : batches(layers, on_spheres())) {
    for (const Block& block : batch.blocks) {
      const double radius = batch.norm->lmo_length(block.shape.rows, block.shape.cols);
      EXPECT_NEAR(length(block.of(block.layer.parameter)) / radius, 1, 0x1p-8) << block.name;
    }
  }
}

TEST(SphereStep, NonContiguousParametersGetTheSameStep) {
  std::vector<Layer> plain{{"conv", random_tensor({8, 4, 3, 3}, 1, at::kDouble), Role::kConv}};
  std::vector<Layer> last{{"conv", plain[0].parameter.contiguous(at::MemoryFormat::ChannelsLast), Role::kConv}};
  const Geometry geometry({{.norm = "spectral", .radius = kEta, .sphere = Sphere()}});
  for (auto* layers : {&plain, &last}) {
    Optimizer optimizer(*layers, geometry, quiet());
    train(optimizer, *layers, 3);
  }
  EXPECT_LT(distance(last[0].parameter, plain[0].parameter), 1e-12);
}

TEST(StartOnSpheres, BringsEveryMatrixOntoItsSphereInItsDirection) {
  std::vector<Layer> layers = make_layers(7);
  layers.push_back({"zero", at::zeros({5, 8})});
  layers.push_back({"gain", at::full({4}, 3.0), Role::kVector});
  const Geometry geometry = on_spheres().with_first({.role = Role::kVector, .norm = "euclidean", .radius = kEta});
  const auto start = copies_of(layers);
  start_on_spheres(layers, geometry);
  for (const StepPlan::Batch& batch : batches(layers, geometry)) {
    for (const Block& block : batch.blocks) {
      const at::Tensor x = block.of(block.layer.parameter);
      if (block.layer.role == Role::kVector) {
        EXPECT_TRUE(x.eq(3).all().item<bool>());
        continue;
      }
      EXPECT_NEAR(length(x) / batch.norm->lmo_length(block.shape.rows, block.shape.cols), 1, 2e-7) << block.name;
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LT(distance(normalized(layers[i].parameter), normalized(start[i])), 1e-6) << layers[i].name;
  }
  // Zeros become orthogonal: 5 singular values of sqrt(5 / 8).
  const at::Tensor zero = layers[7].parameter.to(at::kDouble);
  EXPECT_LT(distance(zero.matmul(zero.t()), at::eye(5, at::kDouble) * 5 / 8), 5e-3);
  const auto once = copies_of(layers);
  start_on_spheres(layers, geometry);
  for (std::size_t i = 0; i < layers.size(); ++i) EXPECT_LT(distance(layers[i].parameter, once[i]), 1e-6);
}

TEST(StartOnSpheres, SeedsGiveOtherZerosAndTheSameOthers) {
  const auto started = [](uint64_t seed) {
    std::vector<Layer> layers{{"zero", at::zeros({5, 8})}, {"w", random_tensor({5, 8}, 1)}};
    start_on_spheres(layers, on_spheres(), seed);
    return copies_of(layers);
  };
  EXPECT_TRUE(started(1)[0].equal(started(1)[0]));
  EXPECT_FALSE(started(1)[0].equal(started(2)[0]));
  EXPECT_TRUE(started(1)[1].equal(started(2)[1]));
}

// After start_on_spheres() the first gradient too is that of weights on the sphere.
TEST(StartOnSpheres, WholeRunsForgetTheScaleOfTheStart) {
  std::vector<at::Tensor> expected;
  for (const double scale : {1.0, 0.01, 100.0}) {
    std::vector<Layer> layers = make_layers(scale, at::kDouble);
    start_on_spheres(layers, on_spheres());
    Optimizer optimizer(layers, on_spheres(), quiet());
    train(optimizer, layers, 20);
    if (expected.empty()) expected = copies_of(layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      EXPECT_LT(distance(layers[i].parameter, expected[i]), 1e-6 * length(expected[i])) << layers[i].name;
    }
  }
}

TEST(Initialize, RulesWithASphereStartOnIt) {
  std::vector<Layer> layers = make_layers();
  for (const auto& [sphere, radius] : {std::pair{Sphere(), 0.0}, {Sphere(2.5), 2.5}}) {
    initialize(layers, on_spheres(sphere), {.ball = 3});
    for (const StepPlan::Batch& batch : batches(layers, on_spheres())) {
      for (const Block& block : batch.blocks) {
        const double own = batch.norm->lmo_length(block.shape.rows, block.shape.cols);
        EXPECT_NEAR(length(block.of(block.layer.parameter)) / (radius > 0 ? radius : own), 1, 2e-7) << block.name;
      }
    }
  }
}

}  // namespace
}  // namespace gluon
