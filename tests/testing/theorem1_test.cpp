// Theorem 1 of the paper, and its version under the Polyak-Lojasiewicz condition, on problems with known
// constants: what gluon::Optimizer does in every step against what the proofs promise.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gluon/radius/radius.h"
#include "gluon/testing/problems.h"
#include "gluon/update/optimizer.h"

namespace gluon {
namespace {

const std::vector<MatrixShape> kShapes = {{.rows = 6, .cols = 4},
                                          {.rows = 4, .cols = 6},
                                          {.rows = 5, .cols = 5},
                                          {.rows = 1, .cols = 7},
                                          {.rows = 6, .cols = 4}};

const auto kNorms = ::testing::Values("spectral(svd)", "max_entry", "euclidean", "columns", "rows",
                                      "scaled(0.5,spectral(svd))", "scaled(sqrt(n/m),spectral(svd))",
                                      "scaled(n,max_entry)", "scaled(2,scaled(1.5,rows))");

double dual_of(const Norm& norm, const at::Tensor& g) {
  return norm.dual_norm(g.unsqueeze(0)).item<double>();
}

// A problem, a norm per layer, and the constants theorem 1 needs.
struct Measured {
  Measured(const std::string& norm, const std::string& kind)
      : problem(make_problem(kind, kShapes)), norm_name(norm) {
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      norms.push_back(make_norm(norm, kShapes[i]));
      constants.push_back(problem.objectives[i]->smoothness(*norms[i]));
    }
  }

  double sum(const std::function<double(std::size_t)>& term) const {
    double result = 0;
    for (std::size_t i = 0; i < norms.size(); ++i) result += term(i);
    return result;
  }

  double largest(double Smoothness::*constant) const {
    double result = 0;
    for (const Smoothness& layer : constants) result = std::max(result, layer.*constant);
    return result;
  }

  double initial_gap() const { return problem.value(problem.layers()) - problem.infimum(); }

  Problem problem;
  std::string norm_name;
  std::vector<NormPtr> norms;
  std::vector<Smoothness> constants;
};

// Deterministic Gluon with theorem 1's radii, through the optimizer people use.
class Descent {
 public:
  explicit Descent(const Measured& measured)
      : measured_(measured), layers_(measured.problem.layers()), optimizer_(make_optimizer()) {
    evaluate();
  }

  void step() {
    optimizer_.step();
    evaluate();
  }

  double value() const { return value_; }
  double dual(std::size_t layer) const { return duals_[layer]; }  // |grad_i f|*
  double gap() const { return value_ - measured_.problem.infimum(); }
  const std::vector<Layer>& layers() const { return layers_; }

  // What theorem 1's proof promises of the next step (paper: the descent inequality).
  double promised_descent() const {
    return measured_.sum([&](std::size_t i) {
      return duals_[i] * duals_[i] /
             (2 * (measured_.constants[i].l0 + measured_.constants[i].l1 * duals_[i]));
    });
  }

 private:
  Optimizer make_optimizer() const {
    std::vector<Rule> rules;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Smoothness& constants = measured_.constants[i];
      rules.push_back({.pattern = layers_[i].name,
                       .norm = measured_.norm_name,
                       .radius = smooth_radius(constants.l0, constants.l1)});
    }
    return Optimizer(layers_, Geometry(std::move(rules)), {.momentum = Momentum::none()});
  }

  void evaluate() {
    measured_.problem.write_gradients(layers_);
    value_ = measured_.problem.value(layers_);
    duals_.clear();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      duals_.push_back(dual_of(*measured_.norms[i], layers_[i].parameter.grad()));
    }
  }

  const Measured& measured_;
  std::vector<Layer> layers_;
  Optimizer optimizer_;
  double value_ = 0;
  std::vector<double> duals_;
};

// The first k with measure() <= precision, plus one: how many iterates X_0, X_1, ... it took.
double iterations_until(Descent& run, double precision, double most, const std::function<double()>& measure) {
  double count = 1;
  while (measure() > precision && count <= most) {
    run.step();
    ++count;
  }
  return count;
}

class EveryNormAndProblem : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  EveryNormAndProblem() : measured(std::get<0>(GetParam()), std::get<1>(GetParam())) {}
  Measured measured;
};

class EveryNormAndProblemWithL1 : public EveryNormAndProblem {};  // the weights are 1 / L1
class EveryNormAndProblemWithPl : public EveryNormAndProblem {};

TEST_P(EveryNormAndProblem, EveryStepDescendsAsTheorem1Promises) {
  Descent run(measured);
  int steps = 0;
  for (; steps < 40; ++steps) {
    const double before = run.value(), promised = run.promised_descent();
    if (promised < 1e-12 * before) break;  // below the rounding of the values
    run.step();
    ASSERT_LE(run.value(), before - promised + 1e-13 * before)
        << "step " << steps << " promised " << promised;
  }
  EXPECT_GE(steps, 5);
}

TEST_P(EveryNormAndProblem, OptimizerTakesTheStepsOfTheAlgorithm) {
  Descent run(measured);
  std::vector<Layer> layers = measured.problem.layers();
  for (int k = 0; k < 5; ++k) {
    run.step();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      at::Tensor& x = layers[i].parameter;
      const at::Tensor g = measured.problem.objectives[i]->gradient(x);
      const double dual = dual_of(*measured.norms[i], g);
      x = x + measured.norms[i]->lmo(g.unsqueeze(0)).squeeze(0) *
                  (dual / (measured.constants[i].l0 + measured.constants[i].l1 * dual));
      ASSERT_TRUE(at::allclose(run.layers()[i].parameter, x, 1e-9, 1e-9)) << "step " << k << " layer " << i;
    }
  }
}

TEST_P(EveryNormAndProblem, IterationsStayBelowTheorem1) {
  Descent run(measured);
  const auto gradient_size = [&] { return measured.sum([&](std::size_t i) { return run.dual(i); }); };
  const double epsilon = gradient_size() / 10;
  const double sum_l0 = measured.sum([&](std::size_t i) { return measured.constants[i].l0; });
  const double bound = std::ceil(2 * measured.initial_gap() * sum_l0 / (epsilon * epsilon) +
                                 2 * measured.initial_gap() * measured.largest(&Smoothness::l1) / epsilon);
  EXPECT_LE(iterations_until(run, epsilon, bound, gradient_size), bound);
}

TEST_P(EveryNormAndProblemWithL1, IterationsStayBelowTheorem1Weighted) {
  const auto& constants = measured.constants;
  Descent run(measured);
  const double layers = static_cast<double>(constants.size());
  const double mean = measured.sum([&](std::size_t i) { return 1 / constants[i].l1; }) / layers;
  const auto gradient_size = [&] {
    return measured.sum([&](std::size_t i) { return run.dual(i) / constants[i].l1; }) / mean;
  };
  const double epsilon = gradient_size() / 10;
  const double weighted_l0 =
      measured.sum([&](std::size_t i) { return constants[i].l0 / (constants[i].l1 * constants[i].l1); });
  const double bound = std::ceil(2 * measured.initial_gap() * weighted_l0 / std::pow(epsilon * mean, 2) +
                                 2 * measured.initial_gap() / (epsilon * mean));
  EXPECT_LE(iterations_until(run, epsilon, bound, gradient_size), bound);
}

TEST_P(EveryNormAndProblemWithPl, IterationsStayBelowThePlTheorem) {
  const double mu = measured.problem.pl_constant(measured.norms);
  ASSERT_GT(mu, 0);
  Descent run(measured);
  const double gap = measured.initial_gap(), epsilon = gap / 20;
  const double sum_l0 = measured.sum([&](std::size_t i) { return measured.constants[i].l0; });
  const double l0 = measured.largest(&Smoothness::l0), l1 = measured.largest(&Smoothness::l1);
  const double bound = std::ceil(sum_l0 * gap / (mu * epsilon) + std::sqrt(2 / (mu * epsilon)) * l1 * gap);
  const double count = iterations_until(run, epsilon, bound, [&] { return run.gap(); });
  EXPECT_LE(count, bound);
  if (l1 == 0) {
    EXPECT_LE(count - 1, std::ceil(l0 / mu * std::log(gap / epsilon)));  // case 2 counts steps
  }
}

using ::testing::Combine;
using ::testing::Values;
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblem,
                         Combine(kNorms, Values("quadratic", "exponential", "cosh", "mixed")));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithL1, Combine(kNorms, Values("exponential", "cosh")));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithPl, Combine(kNorms, Values("quadratic", "cosh")));

// In a batch of several layers, with constants that serve all of them.
TEST(Theorem1, LayersThatShareARuleDescendTogether) {
  Measured measured("columns", "mixed");
  const Smoothness shared{.l0 = measured.largest(&Smoothness::l0), .l1 = measured.largest(&Smoothness::l1)};
  std::fill(measured.constants.begin(), measured.constants.end(), shared);
  const std::vector<Layer> layers = measured.problem.layers();
  Optimizer optimizer(layers, Geometry({{.norm = "columns", .radius = smooth_radius(shared.l0, shared.l1)}}),
                      {.momentum = Momentum::none()});
  for (int k = 0; k < 20; ++k) {
    measured.problem.write_gradients(layers);
    const double before = measured.problem.value(layers);
    const double promised = measured.sum([&](std::size_t i) {
      const double dual = dual_of(*measured.norms[i], layers[i].parameter.grad());
      return dual * dual / (2 * (shared.l0 + shared.l1 * dual));
    });
    optimizer.step();
    ASSERT_LE(measured.problem.value(layers), before - promised + 1e-13 * before) << "step " << k;
  }
}

}  // namespace
}  // namespace gluon
