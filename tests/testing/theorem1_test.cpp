// Theorem 1 of the paper, and its version under the Polyak-Lojasiewicz condition, on problems with known
// constants: compares every step of gluon::Optimizer with the inequality of the proof.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gluon/radius/radius.h"
#include "gluon/testing/problems.h"
#include "gluon/theory/deterministic.h"
#include "gluon/update/optimizer.h"
#include "tests/theory/known_problem.h"

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

class EveryNormAndProblem : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  EveryNormAndProblem() : known(std::get<0>(GetParam()), std::get<1>(GetParam()), kShapes) {}
  KnownProblem known;
};

class EveryNormAndProblemWithL1 : public EveryNormAndProblem {};  // the weights are 1 / L1
class EveryNormAndProblemWithPl : public EveryNormAndProblem {};

// What the step of theorem 1 reduces f by at least: sum of |g_i|*^2 / (2 (L0_i + L1_i |g_i|*)).
double promised_descent(const theory::Constants& constants, const std::vector<double>& duals) {
  double sum = 0;
  for (std::size_t i = 0; i < duals.size(); ++i) {
    sum += theory::theorem1_radius(constants.layers[i], duals[i]) * duals[i] / 2;
  }
  return sum;
}

// sum_i w_i |grad_i f|* is reduced tenfold within K iterates.
void expect_within_count(const KnownProblem& known, const theory::Guarantee& guarantee) {
  std::vector<Descent> runs;
  runs.emplace_back(known, guarantee);
  const double epsilon = runs[0].measure(guarantee.weights) / 10, count = guarantee.iterations(epsilon);
  EXPECT_LE(iterations_until(runs, epsilon, count, [&](const Descent& run) { return run.measure(guarantee.weights); }),
            count);
}

TEST_P(EveryNormAndProblem, EveryStepDescendsAsTheorem1Promises) {
  Descent run(known, theory::theorem1(known.constants));
  int steps = 0;
  for (; steps < 40; ++steps) {
    const double before = run.value(), promised = promised_descent(known.constants, run.duals());
    if (promised < 1e-12 * before) break;  // below the rounding of the values
    run.step();
    ASSERT_LE(run.value(), before - promised + 1e-13 * before) << "step " << steps << " promised " << promised;
  }
  EXPECT_GE(steps, 5);
}

TEST_P(EveryNormAndProblem, OptimizerTakesTheStepsOfTheAlgorithm) {
  Descent run(known, theory::theorem1(known.constants));
  std::vector<Layer> layers = known.problem.layers();
  for (int k = 0; k < 5; ++k) {
    run.step();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      at::Tensor& x = layers[i].parameter;
      const at::Tensor g = known.problem.objectives[i]->gradient(x);
      const double radius = theory::theorem1_radius(known.constants.layers[i], dual_of(*known.norms[i], g));
      x = x + known.norms[i]->lmo(g.unsqueeze(0)).squeeze(0) * radius;
      ASSERT_TRUE(at::allclose(run.layers()[i].parameter, x, 1e-9, 1e-9)) << "step " << k << " layer " << i;
    }
  }
}

TEST_P(EveryNormAndProblem, IterationsStayBelowTheorem1) {
  expect_within_count(known, theory::theorem1(known.constants));
}

TEST_P(EveryNormAndProblemWithL1, IterationsStayBelowTheorem1Weighted) {
  expect_within_count(known, theory::theorem1_weighted(known.constants));
}

TEST_P(EveryNormAndProblemWithPl, IterationsStayBelowThePlTheorem) {
  const double mu = known.problem.pl_constant(known.norms);
  ASSERT_GT(mu, 0);
  const theory::Guarantee guarantee = theory::theorem_pl(known.constants, mu);
  const double epsilon = known.constants.initial_gap / 20, most = guarantee.iterations(epsilon);
  std::vector<Descent> runs;
  runs.emplace_back(known, guarantee);
  const double count = iterations_until(runs, epsilon, most, [](const Descent& run) { return run.gap(); });
  EXPECT_LE(count, most);
  if (known.constants.l1_is_zero()) {  // case 2 counts steps
    EXPECT_LE(count - 1, theory::theorem_pl_without_l1(known.constants, mu).iterations(epsilon));
  }
}

using ::testing::Combine;
using ::testing::Values;
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblem,
                         Combine(kNorms, Values("quadratic", "exponential", "cosh", "mixed")));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithL1, Combine(kNorms, Values("exponential", "cosh")));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithPl, Combine(kNorms, Values("quadratic", "cosh")));

// A batch of several layers with constants that hold for all of them.
TEST(Theorem1, LayersThatShareARuleDescendTogether) {
  KnownProblem known("columns", "mixed", kShapes);
  const double l0 = known.constants.max_l0(), l1 = known.constants.max_l1();
  std::fill(known.constants.layers.begin(), known.constants.layers.end(), theory::LayerConstants{.l0 = l0, .l1 = l1});
  const std::vector<Layer> layers = known.problem.layers();
  Optimizer optimizer(layers, Geometry({{.norm = "columns", .radius = smooth_radius(l0, l1)}}),
                      {.momentum = Momentum::none()});
  for (int k = 0; k < 20; ++k) {
    known.problem.write_gradients(layers);
    const double before = known.problem.value(layers);
    const double promised = promised_descent(known.constants, known.duals(layers));
    optimizer.step();
    ASSERT_LE(known.problem.value(layers), before - promised + 1e-13 * before) << "step " << k;
  }
}

}  // namespace
}  // namespace gluon
