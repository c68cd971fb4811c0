// Theorem 3: the sums of its proof, and the theorem on problems with known constants, with noise of exactly its size.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gluon/theory/theorems.h"
#include "tests/theory/known_problem.h"

namespace gluon::theory {
namespace {

// The sums that the proof bounds: how much old noise and old drift the momentum carries.
//
// With beta_k = 1 - (k+1)^(-1/2), t_k = t (k+1)^(-3/4) and beta_{a:b} = beta_a ... beta_b (1 when empty):
//
//   noise   sum_{k<K} t_k sqrt(sum_{j=0..k} ((1 - beta_j) beta_{j+1:k})^2)
//   drift   sum_{k<K} t_k sum_{j=1..k} t_{j-1} beta_{j:k}
//
// The paper's lemma has t_j where the proof needs t_{j-1}: X_j - X_{j-1} is the step of radius t_{j-1}.
struct MomentumSums {
  double noise = 0;
  double drift = 0;
};

MomentumSums momentum_sums(double t, int64_t iterations) {
  MomentumSums sums, inner;  // inner.noise is the sum of squares
  for (int64_t k = 0; k < iterations; ++k) {
    const double beta = theorem3_beta(k), radius = theorem3_radius(t, k);
    inner.noise = beta * beta * inner.noise + (1 - beta) * (1 - beta);
    inner.drift = beta * (inner.drift + (k > 0 ? theorem3_radius(t, k - 1) : 0));
    sums.noise += radius * std::sqrt(inner.noise);
    sums.drift += radius * inner.drift;
  }
  return sums;
}

TEST(MomentumSums, AgreeWithTheDoubleSums) {
  const int64_t iterations = 30;
  const double t = 0.7;
  MomentumSums plain;
  for (int64_t k = 0; k < iterations; ++k) {
    double noise = 0, drift = 0;
    for (int64_t j = 0; j <= k; ++j) {
      double after = 1;  // beta_{j+1:k}
      for (int64_t i = j + 1; i <= k; ++i) after *= theorem3_beta(i);
      noise += std::pow((1 - theorem3_beta(j)) * after, 2);
      if (j > 0) drift += theorem3_radius(t, j - 1) * theorem3_beta(j) * after;
    }
    plain.noise += theorem3_radius(t, k) * std::sqrt(noise);
    plain.drift += theorem3_radius(t, k) * drift;
  }
  const MomentumSums fast = momentum_sums(t, iterations);
  EXPECT_NEAR(fast.noise, plain.noise, 1e-12);
  EXPECT_NEAR(fast.drift, plain.drift, 1e-12);
}

// With Delta0 = 0 and one of sigma and L0 (almost) 0, theorem 3's bound is K^(-1/4) times twice one of the sums.
TEST(MomentumSums, StayBelowTheBoundOfTheorem3) {
  for (const double t : {0.01, 1.0, 30.0}) {
    const Guarantee noise = theorem3({.layers = {{.l0 = 1e-300, .t = t}}}, 1);
    const Guarantee drift = theorem3({.layers = {{.l0 = 1, .t = t}}}, 0);
    for (const int64_t iterations : {1, 2, 3, 5, 10, 100, 1000, 300000}) {
      const auto count = static_cast<double>(iterations);
      const MomentumSums sums = momentum_sums(t, iterations);
      EXPECT_LE(2 * sums.noise, noise.bound(count) * std::pow(count, 0.25)) << iterations;
      EXPECT_LE(2 * sums.drift, drift.bound(count) * std::pow(count, 0.25) / 10) << iterations;
    }
  }
}

// Theorem 3 absorbs C L1 t_i sum t_k E|grad f| on its left side, with C L1 t_i <= 1/2 for t_i = 1/(12 L1), so
// C <= 6 is needed. C = 2 max_j (t_{j-1} / t_j) sum_{k>=j} (k+1)^(-3/4) beta_{j:k} + 1/2.
TEST(MomentumSums, LeaveRoomForTheL1Term) {
  double largest = 0;
  for (int64_t j = 1; j < 60; ++j) {
    double sum = 0, product = 1;
    for (int64_t k = j; k < j + 3000; ++k) {
      product *= theorem3_beta(k);
      sum += theorem3_radius(1, k) * product;
    }
    largest = std::max(largest, sum * theorem3_radius(1, j - 1) / theorem3_radius(1, j));
  }
  EXPECT_NEAR(2 * largest + 0.5, 1.42, 0.01);
}

const std::vector<MatrixShape> kShapes = {{.rows = 4, .cols = 3}, {.rows = 3, .cols = 4}, {.rows = 1, .cols = 5}};
constexpr uint64_t kSeeds = 3;

// b / a for a |.|_F <= |.|* <= b |.|_F, see gluon/theory/theorems.h.
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
      LayerConstants& layer = known.constants.layers[i];
      layer.noise_factor = noise_factor(known.norm_name, kShapes[i]);
      // L1 = 0 allows every t: take a quarter of theorem 1's first radius.
      if (layer.l1 == 0) layer.t = theorem1_radius(layer, duals[i]) / 4;
    }
    guarantee = theorem3(known.constants, sigma);
  }

  // |g - grad f|* = sigma in every draw.
  Runs runs() const {
    const auto noise = [sigma = sigma](const at::Tensor& gradient, const Norm& norm, at::Generator& generator) {
      return gradient + random_with_dual(gradient, norm, sigma, generator);
    };
    return Runs(known, guarantee, noise, kSeeds);
  }

  KnownProblem known;
  double sigma = 0;
  Guarantee guarantee;
};

TEST_P(EveryNormAndProblemWithNoise, IterationsStayBelowTheorem3) {
  Runs all = runs();
  const double epsilon = all.mean() / 2;
  // K is in the millions; 2000 steps suffice because the theorem's constants are loose.
  const double most = 2000;
  ASSERT_GE(guarantee.iterations(epsilon), most);
  EXPECT_LE(all.iterations_until(epsilon, most), most);
}

// The best iterate stays below the bound, and so do the proof's sums before the lemma's bounds replace them: for
// A_i = sum_k t_k E|grad_i f|*,
//   sum_i (1 - 1.5 L1_i t_i) A_i <= Delta0 + sum_i [2 c sigma noise + 2 L0 drift + L0 / 2 sum_k t_k^2].
TEST_P(EveryNormAndProblemWithNoise, BestIterateAndSumsOfTheProofStayBelowTheirBounds) {
  Runs all = runs();
  double left = 0, squares = 0, best = INFINITY;
  for (int64_t k = 0; k < 60; ++k) {
    best = std::min(best, all.mean());
    ASSERT_LE(best, guarantee.bound(static_cast<double>(k) + 1)) << "K = " << k + 1;
    squares += std::pow(theorem3_radius(1, k), 2);
    double right = known.constants.initial_gap;
    for (std::size_t i = 0; i < known.norms.size(); ++i) {
      const LayerConstants& layer = known.constants.layers[i];
      const double t = guarantee.weights[i];
      const MomentumSums sums = momentum_sums(t, k + 1);
      right += 2 * layer.noise_factor * sigma * sums.noise + 2 * layer.l0 * sums.drift + layer.l0 / 2 * t * t * squares;
      for (const Descent& run : all.runs) {
        left += (1 - 1.5 * layer.l1 * t) * theorem3_radius(t, k) * run.duals()[i] / kSeeds;
      }
    }
    ASSERT_LE(left, right) << "K = " << k + 1;
    all.step();
  }
}

using ::testing::Combine;
using ::testing::Values;
INSTANTIATE_TEST_SUITE_P(Theorem3, EveryNormAndProblemWithNoise,
                         Combine(Values("max_entry", "euclidean", "scaled(sqrt(n/m),spectral(svd))"),
                                 Values("quadratic", "exponential", "cosh", "mixed"), Values(0.1, 1.0)));

// The proof fails for norms that are not Euclidean: noise in different entries is orthogonal, but its dual
// norms add up. The noise factor accounts for that.
TEST(Theorem3Noise, AddsUpWithItsFactor) {
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
    EXPECT_NEAR(dual_of(*norm, sum), noise_factor(name, shape) * std::sqrt(squares), 1e-12) << name;
  }
}

}  // namespace
}  // namespace gluon::theory
