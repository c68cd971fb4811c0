#include "gluon/testing/problems.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gluon/radius/radius.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

const std::vector<MatrixShape> kShapes = {{.rows = 6, .cols = 4},
                                          {.rows = 4, .cols = 6},
                                          {.rows = 5, .cols = 5},
                                          {.rows = 1, .cols = 7},
                                          {.rows = 6, .cols = 4}};

const auto kNorms =
    ::testing::Values("spectral(svd)", "max_entry", "euclidean", "columns", "rows", "scaled(0.5,spectral(svd))",
                      "scaled(sqrt(n/m),spectral(svd))", "scaled(n,max_entry)", "scaled(2,scaled(1.5,rows))");

at::Generator make_generator(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

at::Tensor random_matrix(const MatrixShape& shape, at::Generator& generator) {
  return at::randn({shape.rows, shape.cols}, generator, at::kDouble);
}

double norm_of(const Norm& norm, const at::Tensor& x) { return norm.norm(x.unsqueeze(0)).item<double>(); }
double dual_of(const Norm& norm, const at::Tensor& g) { return norm.dual_norm(g.unsqueeze(0)).item<double>(); }
at::Tensor lmo_of(const Norm& norm, const at::Tensor& g) { return norm.lmo(g.unsqueeze(0)).squeeze(0); }

double squares(const at::Tensor& x) { return (x * x).sum().item<double>(); }

// The two sides of the assumption, left over right: at most 1 when the constants hold.
double assumption_ratio(const LayerObjective& f, const Norm& norm, const Smoothness& constants, const at::Tensor& x,
                        const at::Tensor& y) {
  const at::Tensor g = f.gradient(x);
  const double bound = (constants.l0 + constants.l1 * dual_of(norm, g)) * norm_of(norm, x - y);
  return dual_of(norm, g - f.gradient(y)) / bound;
}

// ---- constants ----

class EveryNormOfProblems : public ::testing::TestWithParam<std::string> {
 protected:
  NormPtr norm(const MatrixShape& shape) const { return make_norm(GetParam(), shape); }
};

TEST_P(EveryNormOfProblems, ConstantsHoldForRandomPairs) {
  for (const char* kind : {"quadratic", "exponential", "cosh"}) {
    const Problem problem = make_problem(kind, kShapes);
    at::Generator generator = make_generator(1);
    double largest = 0;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      const LayerObjective& f = *problem.objectives[i];
      const NormPtr size = norm(kShapes[i]);
      const Smoothness constants = f.smoothness(*size);
      const double longest = std::min(constants.distance, 1e3);
      for (int pair = 0; pair < 20; ++pair) {
        const double part = std::pow(10, -(pair % 4));
        const at::Tensor x = problem.start[i] * (1 - pair * 0.1);
        const at::Tensor random = random_matrix(kShapes[i], generator);
        const at::Tensor uphill = -lmo_of(*size, pair % 2 ? f.gradient(x) : random);
        const double ratio = assumption_ratio(f, *size, constants, x, x + uphill * (longest * part));
        ASSERT_LE(ratio, 1 + 1e-9) << kind << " layer " << i << " pair " << pair;
        largest = std::max(largest, ratio);
      }
    }
    EXPECT_GT(largest, 0.5) << kind << ": pairs that come nowhere near the bound would not test it";
  }
}

// Along the stiffest direction, where |zH|* = L0 |z|, the promised descent is the whole way to the minimum.
TEST_P(EveryNormOfProblems, StiffestDirectionAttainsL0InOneStep) {
  for (const MatrixShape& shape : kShapes) {
    at::Generator generator = make_generator(2);
    const at::Tensor minimiser = random_matrix(shape, generator);
    const auto f = std::make_shared<Quadratic>(minimiser, at::rand({shape.cols}, generator, at::kDouble) + 0.1);
    const NormPtr size = norm(shape);
    const Smoothness constants = f->smoothness(*size);
    const at::Tensor start = minimiser + f->stiffest_direction(*size) * 1.5;
    EXPECT_NEAR(assumption_ratio(*f, *size, constants, start, minimiser), 1, 1e-12);
    EXPECT_EQ(constants.l1, 0);
    EXPECT_EQ(constants.distance, INFINITY);

    Problem problem{{f}, {start}};
    const std::vector<Layer> layers = problem.layers();
    Optimizer optimizer(layers, Geometry({{.norm = GetParam(), .radius = smooth_radius(constants.l0, 0)}}),
                        {.momentum = Momentum::none()});
    problem.write_gradients(layers);
    const double dual = dual_of(*size, layers[0].parameter.grad()), before = problem.value(layers);
    optimizer.step();
    EXPECT_NEAR(before, dual * dual / (2 * constants.l0), 1e-12 * before);
    EXPECT_NEAR(problem.value(layers), 0, 1e-12 * before);
  }
}

// The exponential attains them everywhere, cosh L0 at its minimum and L1 far from it.
TEST_P(EveryNormOfProblems, RidgesAttainTheirConstants) {
  at::Generator generator = make_generator(3);
  for (const MatrixShape& shape : kShapes) {
    const at::Tensor slope = random_matrix(shape, generator);
    const NormPtr size = norm(shape);
    const double steepness = dual_of(*size, slope);
    const at::Tensor uphill = -lmo_of(*size, slope);
    for (const auto& [kind, u, l0, tolerance] : {std::tuple(Ridge::kExponential, 1.0, 0.0, 1e-9),
                                                 {Ridge::kCosh, 0.0, 0.75 / std::numbers::ln2, 1e-12},
                                                 {Ridge::kCosh, 20.0, 0.75 / std::numbers::ln2, 1e-6}}) {
      const Ridge f(kind, slope);
      const Smoothness constants = f.smoothness(*size);
      EXPECT_NEAR(constants.l0, l0 * steepness * steepness, 1e-12 * constants.l0);
      EXPECT_NEAR(constants.l1, steepness / std::numbers::ln2, 1e-12 * steepness);
      EXPECT_NEAR(constants.l1 * constants.distance, 1, 1e-12);
      const at::Tensor x = slope * (u / squares(slope));
      EXPECT_NEAR(assumption_ratio(f, *size, constants, x, x + uphill * constants.distance), 1, tolerance);
    }
  }
}

TEST_P(EveryNormOfProblems, PlConstantsHoldAndAreAttained) {
  at::Generator generator = make_generator(5);
  for (const MatrixShape& shape : kShapes) {
    const NormPtr size = norm(shape);
    const auto ratio = [&](const LayerObjective& f, const at::Tensor& x) {
      return std::pow(dual_of(*size, f.gradient(x)), 2) / (2 * f.pl_constant(*size) * (f.value(x) - f.infimum()));
    };
    const at::Tensor a = random_matrix(shape, generator);
    const at::Tensor h = at::rand({shape.cols}, generator, at::kDouble) + 0.1;
    const Quadratic quadratic(a, h);
    const Ridge cosh(Ridge::kCosh, a);
    for (int point = 0; point < 20; ++point) {
      const at::Tensor x = random_matrix(shape, generator);
      EXPECT_GE(ratio(quadratic, x), 1);
      EXPECT_GE(ratio(cosh, x), 1 - 1e-9);
    }
    at::Tensor flattest = a.clone();
    flattest[0][h.argmin().item<int64_t>()] += 1;
    EXPECT_NEAR(ratio(quadratic, flattest), 1, 1e-12);
    EXPECT_NEAR(ratio(cosh, a * (1e-3 / squares(a))), 1, 1e-5);
    EXPECT_EQ(Ridge(Ridge::kExponential, a).pl_constant(*size), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, EveryNormOfProblems, kNorms);

// ---- values ----

TEST(Problem, GradientsAgreeWithFiniteDifferences) {
  const Problem problem = make_problem("mixed", kShapes, 7);
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const LayerObjective& f = *problem.objectives[i];
    const at::Tensor gradient = f.gradient(problem.start[i]).flatten();
    for (int64_t entry = 0; entry < gradient.numel(); ++entry) {
      at::Tensor right = problem.start[i].clone(), left = problem.start[i].clone();
      right.view(-1)[entry] += 1e-5;
      left.view(-1)[entry] -= 1e-5;
      EXPECT_NEAR((f.value(right) - f.value(left)) / 2e-5, gradient[entry].item<double>(), 1e-6)
          << "layer " << i << " entry " << entry;
    }
  }
}

TEST(Problem, ValueIsTheSumOfItsTerms) {
  const at::Tensor one = at::ones({1, 1}, at::kDouble);
  const Problem problem{
      {std::make_shared<Quadratic>(one, at::full({1}, 6.0, at::kDouble)),
       std::make_shared<Ridge>(Ridge::kExponential, one * 2), std::make_shared<Ridge>(Ridge::kCosh, one * 3)},
      {one * 3, one, one}};
  const double expected = 12 + std::exp(2) + std::cosh(3);
  EXPECT_NEAR(problem.value(problem.layers()), expected, 1e-12 * expected);
  EXPECT_EQ(problem.infimum(), 1);
}

TEST(Problem, SameSeedSameProblem) {
  const Problem first = make_problem("cosh", kShapes, 3), second = make_problem("cosh", kShapes, 3);
  const Problem other = make_problem("cosh", kShapes, 4);
  EXPECT_EQ(first.value(first.layers()), second.value(second.layers()));
  EXPECT_TRUE(at::equal(first.start[0], second.start[0]));
  EXPECT_FALSE(at::equal(first.start[0], other.start[0]));
}

// ---- bad input ----

class UnknownNorm : public Norm {
 public:
  std::string name() const override { return "mine"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return x.abs().sum({1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return g.abs().amax({1, 2}); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return g; }
};

TEST(Problem, BadInput) {
  const at::Tensor a = at::ones({2, 3}), h = at::ones({3});
  EXPECT_INPUT_ERROR(Quadratic(a, at::ones({2})),
                     "Quadratic: expected a minimiser (m, n) and a curvature (n), got [2, 3] and [2]");
  EXPECT_INPUT_ERROR(Quadratic(a, h * 0), "Quadratic: the curvature must be > 0, got 0");
  EXPECT_INPUT_ERROR(Quadratic(a, h).smoothness(UnknownNorm()),
                     "Quadratic: constants are known for spectral, max_entry, euclidean, columns, rows and "
                     "scaled, got mine");
  EXPECT_INPUT_ERROR(Ridge(Ridge::kCosh, h), "Ridge: expected a slope (m, n), got [3]");
  EXPECT_INPUT_ERROR(Ridge(Ridge::kExponential, a * 0), "Ridge: the slope must not be zero");
  EXPECT_INPUT_ERROR(make_problem("cubic", kShapes),
                     "problem: unknown name 'cubic'; allowed are quadratic, exponential, cosh, mixed");
  const std::vector<MatrixShape> experts = {{.batch = 2, .rows = 3, .cols = 4}};
  EXPECT_INPUT_ERROR(make_problem("cosh", experts), "problem: expected one matrix per layer, got (2, 3, 4)");
}

}  // namespace
}  // namespace gluon
