// Theorem 2 on problems with known constants, with noise that meets its assumption exactly.

#include <gtest/gtest.h>

#include "gluon/theory/stochastic.h"
#include "tests/theory/known_problem.h"

namespace gluon {
namespace {

const std::vector<MatrixShape> kShapes = {{.rows = 4, .cols = 3}, {.rows = 3, .cols = 4}, {.rows = 1, .cols = 5}};

// g = grad f + e with |e|* = z / (1 + z) |grad f|*. Then |g|* >= |grad f|* / (1 + z), so |e|* <= z |g|*, and
// the mean of g is grad f because e and -e are equally likely. e has a random direction, or the gradient's, where
// |e|* = z |g|* whenever it points against it.
Noise any_direction(double zeta) {
  return [zeta](const at::Tensor& gradient, const Norm& norm, at::Generator& generator) {
    return gradient + random_with_dual(gradient, norm, zeta / (1 + zeta) * dual_of(norm, gradient), generator);
  };
}

Noise along_the_gradient(double zeta) {
  return [zeta](const at::Tensor& gradient, const Norm&, at::Generator& generator) {
    const bool up = at::rand({1}, generator, at::TensorOptions(at::kDouble)).item<double>() < 0.5;
    return gradient * (1 + (up ? 1 : -1) * zeta / (1 + zeta));
  };
}

class EveryNormNoiseAndProblem
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string, double>> {
 protected:
  EveryNormNoiseAndProblem()
      : known(std::get<0>(GetParam()), std::get<1>(GetParam()), kShapes), zeta(std::get<3>(GetParam())) {
    noise = std::get<2>(GetParam()) == "any" ? any_direction(zeta) : along_the_gradient(zeta);
  }

  std::vector<Descent> runs(const theory::Guarantee& guarantee, uint64_t seeds) const {
    std::vector<Descent> result;
    for (uint64_t seed = 0; seed < seeds; ++seed) result.emplace_back(known, guarantee, noise, seed);
    return result;
  }

  void expect_within_count(const theory::Guarantee& guarantee) const {
    std::vector<Descent> all = runs(guarantee, 5);
    const double epsilon = all[0].measure(guarantee.weights) / 5, count = guarantee.iterations(epsilon);
    EXPECT_LE(iterations_until(all, epsilon, count, [&](const Descent& run) { return run.measure(guarantee.weights); }),
              count);
  }

  KnownProblem known;
  double zeta;
  Noise noise;
};

class EveryNormNoiseAndProblemWithL1 : public EveryNormNoiseAndProblem {};

TEST_P(EveryNormNoiseAndProblem, NoiseMeetsTheAssumption) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  double largest = 0;
  for (int draw = 0; draw < 20; ++draw) {
    const at::Tensor gradient = at::randn({4, 3}, generator, at::TensorOptions(at::kDouble));
    const at::Tensor noisy = noise(gradient, *known.norms[0], generator);
    const double ratio = dual_of(*known.norms[0], noisy - gradient) / dual_of(*known.norms[0], noisy);
    ASSERT_LE(ratio, zeta * (1 + 1e-12));
    largest = std::max(largest, ratio);
  }
  EXPECT_GE(largest, 0.2 * zeta);
}

// The proof's inequality holds for every draw, not only in the mean:
// f falls by at least sum_i (1-z)^2 |g_i|*^2 / (2 (L0_i + (1+z) L1_i |g_i|*)).
TEST_P(EveryNormNoiseAndProblem, EveryStepDescendsAsTheProofPromises) {
  for (Descent& run : runs(theory::theorem2(known.constants, zeta), 2)) {
    for (int k = 0; k < 30; ++k) {
      double promised = 0;
      for (std::size_t i = 0; i < known.norms.size(); ++i) {
        const double dual = run.noisy_duals()[i];
        promised += theory::theorem2_radius(known.constants.layers[i], zeta, dual) * (1 - zeta) * dual / 2;
      }
      const double before = run.value();
      run.step();
      ASSERT_LE(run.value(), before - promised + 1e-13 * before) << "step " << k;
    }
  }
}

TEST_P(EveryNormNoiseAndProblem, IterationsStayBelowTheorem2) {
  expect_within_count(theory::theorem2(known.constants, zeta));
}

TEST_P(EveryNormNoiseAndProblemWithL1, IterationsStayBelowTheorem2Weighted) {
  expect_within_count(theory::theorem2_weighted(known.constants, zeta));
}

using ::testing::Combine;
using ::testing::Values;
const auto kNorms = Values("spectral(svd)", "max_entry", "euclidean", "scaled(sqrt(n/m),spectral(svd))");
INSTANTIATE_TEST_SUITE_P(Theorem2, EveryNormNoiseAndProblem,
                         Combine(kNorms, Values("quadratic", "exponential", "cosh", "mixed"), Values("any", "along"),
                                 Values(0.1, 0.6)));
INSTANTIATE_TEST_SUITE_P(Theorem2, EveryNormNoiseAndProblemWithL1,
                         Combine(kNorms, Values("exponential", "cosh"), Values("any", "along"), Values(0.1, 0.6)));

}  // namespace
}  // namespace gluon
