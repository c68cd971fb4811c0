// Theorem 3 on problems with known constants, with noise of exactly its size.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gluon/theory/deterministic.h"
#include "gluon/theory/stochastic.h"
#include "tests/theory/known_problem.h"
#include "tests/theory/momentum_sums.h"

namespace gluon {
namespace {

const std::vector<MatrixShape> kShapes = {{.rows = 4, .cols = 3}, {.rows = 3, .cols = 4}, {.rows = 1, .cols = 5}};
constexpr uint64_t kSeeds = 3;

// |g - grad f|* = sigma in every draw.
Noise of_size(double sigma) {
  return [sigma](const at::Tensor& gradient, const Norm& norm, at::Generator& generator) {
    return gradient + random_with_dual(gradient, norm, sigma, generator);
  };
}

// b / a for a |.|_F <= |.|* <= b |.|_F, see gluon/theory/stochastic.h.
double noise_factor(const std::string& norm, const MatrixShape& shape) {
  const auto m = static_cast<double>(shape.rows), n = static_cast<double>(shape.cols);
  if (norm.find("spectral") != std::string::npos) return std::sqrt(std::min(m, n));
  return norm == "max_entry" ? std::sqrt(m * n) : 1;
}

class EveryNormAndProblemWithNoise : public ::testing::TestWithParam<std::tuple<std::string, std::string, double>> {
 protected:
  EveryNormAndProblemWithNoise() : known(std::get<0>(GetParam()), std::get<1>(GetParam()), kShapes) {
    const std::vector<double> duals = known.duals(known.problem.layers());
    sigma = std::get<2>(GetParam()) * *std::min_element(duals.begin(), duals.end());
    for (std::size_t i = 0; i < duals.size(); ++i) {
      theory::LayerConstants& layer = known.constants.layers[i];
      layer.noise_factor = noise_factor(known.norm_name, kShapes[i]);
      // L1 = 0 allows every t: take a quarter of theorem 1's first radius.
      if (layer.l1 == 0) layer.t = theory::theorem1_radius(layer, duals[i]) / 4;
    }
  }

  std::vector<Descent> runs(const theory::Guarantee& guarantee) const {
    std::vector<Descent> result;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      result.emplace_back(known, guarantee, of_size(sigma), seed);
    }
    return result;
  }

  KnownProblem known;
  double sigma = 0;
};

TEST_P(EveryNormAndProblemWithNoise, IterationsStayBelowTheorem3) {
  const theory::Guarantee guarantee = theory::theorem3(known.constants, sigma);
  std::vector<Descent> all = runs(guarantee);
  const double epsilon = all[0].measure(guarantee.weights) / 2, count = guarantee.iterations(epsilon);
  // K is in the millions; 2000 steps suffice because the theorem's constants are loose.
  const double most = 2000;
  ASSERT_GE(count, most);
  EXPECT_LE(iterations_until(all, epsilon, most, [&](const Descent& run) { return run.measure(guarantee.weights); }),
            most);
}

TEST_P(EveryNormAndProblemWithNoise, BestIterateStaysBelowTheBound) {
  const theory::Guarantee guarantee = theory::theorem3(known.constants, sigma);
  std::vector<Descent> all = runs(guarantee);
  double best = INFINITY;
  for (int iterations = 1; iterations <= 60; ++iterations) {
    double mean = 0;
    for (Descent& run : all) {
      mean += run.measure(guarantee.weights) / kSeeds;
      run.step();
    }
    best = std::min(best, mean);
    ASSERT_LE(best, guarantee.bound(iterations)) << "K = " << iterations;
  }
}

// The proof's inequality before the lemma's bounds replace its sums: for A_i = sum_k t_k E|grad_i f|*,
//   sum_i (1 - 1.5 L1_i t_i) A_i <= Delta0 + sum_i [2 c sigma noise + 2 L0 drift + L0 / 2 sum_k t_k^2].
TEST_P(EveryNormAndProblemWithNoise, SumsOfTheProofHold) {
  const theory::Guarantee guarantee = theory::theorem3(known.constants, sigma);
  std::vector<Descent> all = runs(guarantee);
  double left = 0, squares = 0;
  for (int64_t k = 0; k < 60; ++k) {
    squares += std::pow(theory::theorem3_radius(1, k), 2);
    double right = known.constants.initial_gap;
    for (std::size_t i = 0; i < known.norms.size(); ++i) {
      const theory::LayerConstants& layer = known.constants.layers[i];
      const double t = guarantee.weights[i];
      const theory::MomentumSums sums = theory::momentum_sums(t, k + 1);
      right += 2 * layer.noise_factor * sigma * sums.noise + 2 * layer.l0 * sums.drift + layer.l0 / 2 * t * t * squares;
      for (const Descent& run : all) {
        left += (1 - 1.5 * layer.l1 * t) * theory::theorem3_radius(t, k) * run.duals()[i] / kSeeds;
      }
    }
    ASSERT_LE(left, right) << "K = " << k + 1;
    for (Descent& run : all) run.step();
  }
}

using ::testing::Combine;
using ::testing::Values;
INSTANTIATE_TEST_SUITE_P(Theorem3, EveryNormAndProblemWithNoise,
                         Combine(Values("max_entry", "euclidean", "scaled(sqrt(n/m),spectral(svd))"),
                                 Values("quadratic", "exponential", "cosh", "mixed"), Values(0.1, 1.0)));

// The proof fails for norms that are not Euclidean: noise in different entries is orthogonal, but its dual
// norms add up. The noise factor accounts for that.
TEST(Theorem3, NoiseAddsUpWithItsFactor) {
  const MatrixShape shape{.rows = 4, .cols = 4};
  for (const std::string name : {"euclidean", "spectral(svd)", "max_entry"}) {
    const NormPtr norm = make_norm(name, shape);
    at::Tensor sum = at::zeros({4, 4}, at::kDouble);
    double squares = 0;
    const int64_t terms = name == "max_entry" ? 16 : 4;
    for (int64_t k = 0; k < terms; ++k) {
      at::Tensor noise = at::zeros({4, 4}, at::kDouble);
      noise[k % 4][(k + k / 4) % 4] = 1;
      squares += std::pow(dual_of(*norm, noise), 2);
      sum += noise;
    }
    const double factor = noise_factor(name, shape);
    EXPECT_NEAR(dual_of(*norm, sum), factor * std::sqrt(squares), 1e-12) << name;
  }
}

}  // namespace
}  // namespace gluon
