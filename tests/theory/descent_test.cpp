// Theorems 1 and 2, and the Polyak-Lojasiewicz theorem, on problems with known constants: compares every step of
// gluon::Optimizer with the inequality of the proof. The noise meets theorem 2's assumption exactly.

#include <gtest/gtest.h>

#include <algorithm>

#include "gluon/theory/theorems.h"
#include "tests/theory/known_problem.h"

namespace gluon {
namespace {

const std::vector<MatrixShape> kShapes = {{.rows = 6, .cols = 4},
                                          {.rows = 4, .cols = 6},
                                          {.rows = 1, .cols = 7},
                                          {.rows = 5, .cols = 5},
                                          {.rows = 6, .cols = 4}};
const std::vector<MatrixShape> kFewShapes(kShapes.begin(), kShapes.begin() + 3);

// g = grad f + e with |e|* = z / (1 + z) |grad f|*. Then |g|* >= |grad f|* / (1 + z), so |e|* <= z |g|*, and
// the mean of g is grad f because e and -e are equally likely. e has a random direction, or the gradient's, where
// |e|* = z |g|* whenever it points against it.
Noise make_noise(const std::string& direction, double zeta) {
  if (direction == "none") return nullptr;
  return [=](const at::Tensor& gradient, const Norm& norm, at::Generator& generator) {
    const double share = zeta / (1 + zeta);
    if (direction == "any") {
      return gradient + random_with_dual(gradient, norm, share * dual_of(norm, gradient), generator);
    }
    const bool up = at::rand({1}, generator, at::kDouble).item<double>() < 0.5;
    return gradient * (1 + (up ? share : -share));
  };
}

// Norm, problem, direction of the noise, zeta.
class EveryNormAndProblem : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string, double>> {
 protected:
  EveryNormAndProblem()
      : zeta(std::get<3>(GetParam())),
        noise(make_noise(std::get<2>(GetParam()), zeta)),
        known(std::get<0>(GetParam()), std::get<1>(GetParam()), noise ? kFewShapes : kShapes) {}

  theory::Guarantee guarantee() const {
    return noise ? theory::theorem2(known.constants, zeta) : theory::theorem1(known.constants);
  }

  double radius(std::size_t layer, double dual) const {
    return theory::theorem2_radius(known.constants.layers[layer], zeta, dual);
  }

  // sum_i w_i |grad_i f|* is reduced tenfold (with noise: fivefold) within K iterates.
  void expect_within_count(const theory::Guarantee& guarantee) const {
    Runs runs(known, guarantee, noise, noise ? 5 : 1);
    const double epsilon = runs.mean() / (noise ? 5 : 10), count = guarantee.iterations(epsilon);
    EXPECT_LE(runs.iterations_until(epsilon, count), count);
  }

  double zeta;
  Noise noise;
  KnownProblem known;
};

class EveryNormAndProblemWithL1 : public EveryNormAndProblem {};  // the weights are 1 / L1
class EveryNormAndProblemWithPl : public EveryNormAndProblem {};

TEST_P(EveryNormAndProblem, NoiseMeetsTheAssumption) {
  if (!noise) return;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  double largest = 0;
  for (int draw = 0; draw < 20; ++draw) {
    const at::Tensor gradient = at::randn({6, 4}, generator, at::kDouble);
    const at::Tensor noisy = noise(gradient, *known.norms[0], generator);
    const double ratio = dual_of(*known.norms[0], noisy - gradient) / dual_of(*known.norms[0], noisy);
    ASSERT_LE(ratio, zeta * (1 + 1e-12));
    largest = std::max(largest, ratio);
  }
  EXPECT_GE(largest, 0.2 * zeta);
}

// The proof's inequality holds for every draw, not only in the mean:
// f falls by at least sum_i (1-z)^2 |g_i|*^2 / (2 (L0_i + (1+z) L1_i |g_i|*)).
TEST_P(EveryNormAndProblem, EveryStepDescendsAsTheProofPromises) {
  Runs all(known, guarantee(), noise, noise ? 2 : 1);
  for (Descent& run : all.runs) {
    int steps = 0;
    for (; steps < 40; ++steps) {
      double promised = 0;
      for (std::size_t i = 0; i < known.norms.size(); ++i) {
        const double dual = run.noisy_duals()[i];
        promised += radius(i, dual) * (1 - zeta) * dual / 2;
      }
      const double before = run.value();
      if (promised < 1e-12 * before) break;  // below the rounding of the values
      run.step();
      ASSERT_LE(run.value(), before - promised + 1e-13 * before) << "step " << steps << " promised " << promised;
    }
    EXPECT_GE(steps, 5);
  }
}

TEST_P(EveryNormAndProblem, OptimizerTakesTheStepsOfTheAlgorithm) {
  Descent run(known, guarantee(), noise);
  for (int k = 0; k < 5; ++k) {
    std::vector<at::Tensor> expected;
    for (std::size_t i = 0; i < known.norms.size(); ++i) {
      const at::Tensor &x = run.layers()[i].parameter, &g = x.grad();
      const Norm& norm = *known.norms[i];
      expected.push_back(x + norm.lmo(g.unsqueeze(0)).squeeze(0) * radius(i, dual_of(norm, g)));
    }
    run.step();
    for (std::size_t i = 0; i < known.norms.size(); ++i) {
      ASSERT_TRUE(at::allclose(run.layers()[i].parameter, expected[i], 1e-9, 1e-9)) << "step " << k << " layer " << i;
    }
  }
}

TEST_P(EveryNormAndProblem, IterationsStayBelowTheTheorem) { expect_within_count(guarantee()); }

TEST_P(EveryNormAndProblemWithL1, IterationsStayBelowTheWeightedTheorem) {
  expect_within_count(noise ? theory::theorem2_weighted(known.constants, zeta)
                            : theory::theorem1_weighted(known.constants));
}

TEST_P(EveryNormAndProblemWithPl, IterationsStayBelowThePlTheorem) {
  const double mu = known.problem.pl_constant(known.norms);
  ASSERT_GT(mu, 0);
  const theory::Guarantee guarantee = theory::theorem_pl(known.constants, mu);
  const double epsilon = known.constants.initial_gap / 20, most = guarantee.iterations(epsilon);
  const double count = Runs(known, guarantee).iterations_until(epsilon, most);
  EXPECT_LE(count, most);
  if (known.constants.l1_is_zero()) {  // case 2 counts steps
    EXPECT_LE(count - 1, theory::theorem_pl_without_l1(known.constants, mu).iterations(epsilon));
  }
}

using ::testing::Combine;
using ::testing::Values;
const auto kNorms = Values("spectral(svd)", "max_entry", "euclidean", "columns", "rows", "scaled(0.5,spectral(svd))",
                           "scaled(sqrt(n/m),spectral(svd))", "scaled(n,max_entry)", "scaled(2,scaled(1.5,rows))");
const auto kFewNorms = Values("spectral(svd)", "max_entry", "euclidean", "scaled(sqrt(n/m),spectral(svd))");
const auto kProblems = Values("quadratic", "exponential", "cosh", "mixed");
const auto kWithL1 = Values("exponential", "cosh");
const auto kNoise = Values("any", "along");
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblem, Combine(kNorms, kProblems, Values("none"), Values(0.0)));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithL1, Combine(kNorms, kWithL1, Values("none"), Values(0.0)));
INSTANTIATE_TEST_SUITE_P(Theorem1, EveryNormAndProblemWithPl,
                         Combine(kNorms, Values("quadratic", "cosh"), Values("none"), Values(0.0)));
INSTANTIATE_TEST_SUITE_P(Theorem2, EveryNormAndProblem, Combine(kFewNorms, kProblems, kNoise, Values(0.1, 0.6)));
INSTANTIATE_TEST_SUITE_P(Theorem2, EveryNormAndProblemWithL1, Combine(kFewNorms, kWithL1, kNoise, Values(0.1, 0.6)));

// A batch of several layers with constants that hold for all of them.
TEST(Theorem1, LayersThatShareARuleDescendTogether) {
  const KnownProblem known("columns", "mixed", kShapes);
  const theory::LayerConstants most{.l0 = known.constants.max_l0(), .l1 = known.constants.max_l1()};
  const std::vector<Layer> layers = known.problem.layers();
  Optimizer optimizer(layers, Geometry({{.norm = "columns", .radius = smooth_radius(most.l0, most.l1)}}),
                      {.momentum = Momentum::none()});
  for (int k = 0; k < 20; ++k) {
    known.problem.write_gradients(layers);
    const double before = known.problem.value(layers);
    double promised = 0;
    for (const double dual : known.duals(layers)) promised += theory::theorem1_radius(most, dual) * dual / 2;
    optimizer.step();
    ASSERT_LE(known.problem.value(layers), before - promised + 1e-13 * before) << "step " << k;
  }
}

}  // namespace
}  // namespace gluon
