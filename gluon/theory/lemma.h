// The lemmas behind theorem 3: how much old noise and old drift the momentum carries along.
//
// With beta_k = 1 - (k+1)^(-1/2), t_k = t (k+1)^(-3/4) and beta_{a:b} = beta_a ... beta_b (1 when empty), for
// K >= 1
//
//   noise   sum_{k<K} t_k sqrt(sum_{j=0..k} ((1 - beta_j) beta_{j+1:k})^2)  <=  t (7/2 + sqrt(2) e log K)
//   drift   sum_{k<K} t_k sum_{j=1..k} t_j beta_{j:k}                       <=  7 t^2 (3 + log K)
//
// (paper: the second technical lemma, after Huebler et al.), and for 0 < q < 1, p >= q, 2 <= a <= b (the
// first)
//
//   sum_{k=a-1}^{b-1} (k+1)^(-p) prod_{j=a-1}^k (1 - (j+1)^(-q))
//     <=  (a-1)^(q-p) exp((a^(1-q) - (a-1)^(1-q)) / (1-q)).
//
// The proof of theorem 3 needs t_{j-1} where the paper writes t_j: X_j - X_{j-1} is the step of radius
// t_{j-1}. That sum is `drift_needed`. The constants survive, because they are loose: it never passes a tenth
// of the drift's bound, and for K = 300000 the three sums are 10.1 t, 10.5 t^2 and 10.9 t^2. Likewise the
// factor 5.1 of L1 t in the proof, which the first lemma would raise to 8.2, is 1.5 when the sums are added
// up (tests).

#pragma once

#include <cstdint>
#include <numbers>

namespace gluon::theory {

inline constexpr double kNoiseConstant = 3.5;
inline constexpr double kNoiseLog = std::numbers::sqrt2 * std::numbers::e;
inline constexpr double kDriftConstant = 21;
inline constexpr double kDriftLog = 7;

struct MomentumSums {
  double noise = 0;
  double drift = 0;
  double drift_needed = 0;
};

/// The right sides of the lemma; drift_needed is drift. Throws InputError unless t > 0 and K >= 1.
MomentumSums momentum_sums_bound(double t, double iterations);

/// The left sides, added up in K steps. Throws InputError unless t > 0 and K >= 1.
MomentumSums momentum_sums(double t, int64_t iterations);

/// Both sides of the first technical lemma. Throw InputError outside 0 < q < 1, p >= q, 2 <= a <= b.
double decayed_sum(int64_t a, int64_t b, double p, double q);
double decayed_sum_bound(int64_t a, double p, double q);

}  // namespace gluon::theory
