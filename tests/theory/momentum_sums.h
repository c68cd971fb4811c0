// The sums that the proof of theorem 3 bounds: how much old noise and old drift the momentum carries.
//
// With beta_k = 1 - (k+1)^(-1/2), t_k = t (k+1)^(-3/4) and beta_{a:b} = beta_a ... beta_b (1 when empty):
//
//   noise   sum_{k<K} t_k sqrt(sum_{j=0..k} ((1 - beta_j) beta_{j+1:k})^2)
//   drift   sum_{k<K} t_k sum_{j=1..k} t_{j-1} beta_{j:k}
//
// The paper's lemma has t_j where the proof needs t_{j-1}: X_j - X_{j-1} is the step of radius t_{j-1}.

#pragma once

#include <cmath>
#include <cstdint>

#include "gluon/theory/stochastic.h"

namespace gluon::theory {

struct MomentumSums {
  double noise = 0;
  double drift = 0;
};

inline MomentumSums momentum_sums(double t, int64_t iterations) {
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

}  // namespace gluon::theory
