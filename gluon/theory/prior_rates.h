// Earlier results: the rows of the paper's table 1 that are not the paper's own.
//
//   result                       stochastic   rate           radius           1 - beta
//   Kovalev 2025, theorem 1      no           K^(-1/2)       const ~ K^(-1/2)   -
//   Kovalev 2025, theorem 2      yes          K^(-1/4)       const ~ K^(-3/4)   const ~ K^(-1/2)
//   Li 2025, theorem 2.1         yes          K^(-1/4)       const ~ K^(-3/4)   const ~ K^(-1/2)
//   Pethick 2025, lemma 5.4      yes          K^(-1/4)       const ~ K^(-3/4)   ~ k^(-1/2)
//
// Li's result is for one layer. All assume that f is L-smooth over the whole space, |grad f(X) - grad f(Y)|* <=
// L |X - Y| in the norm max_i |X_i|, and promise min over k < K of sum_i E|grad_i f(X_k)|* <= eps. Without noise
// all of them need K = ceil(6 L Delta0 / eps^2) iterations (paper, after theorem 1); for the stochastic rows the
// paper gives no constants.
//
// With L1 = 0, f is L-smooth with L = sum_i L0_i, the smallest L that follows from the layers' constants. The
// paper's lemma for the other direction (L-smoothness gives L0_i <= L, L1 = 0) holds for one layer only: it moves
// one layer at a time, but the assumption is about all pairs; f(x, y) = x y is smooth and has no layer-wise
// constants.

#pragma once

#include "gluon/theory/guarantee.h"

namespace gluon::theory {

/// The noise of the gradients: none, theorem 2's relative noise, or theorem 3's bounded variance.
enum class NoiseKind { kNone, kRelative, kVariance };

struct PriorRate {
  std::string source;
  bool stochastic = false;
  std::string rate;
  std::string radius;
  std::string one_minus_beta;
  std::string obstacle{};              // why it does not apply; empty when it does
  std::optional<double> iterations{};  // K for eps without noise, where it applies
};

/// The rows above for the given constants. Throws InputError unless the constants are valid and eps > 0.
std::vector<PriorRate> prior_rates(const Constants& constants, NoiseKind noise, double precision);

}  // namespace gluon::theory
