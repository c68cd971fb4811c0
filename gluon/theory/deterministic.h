// Deterministic Gluon: full gradients, no momentum, radii t = |g|* / (L0 + L1 |g|*).
//
//   theorem      promise                                              K, rounded up
//   1            min over k < K of sum_i |g_i|* <= eps                2 D sum L0 / eps^2 + 2 D max L1 / eps
//   1 weighted   min over k < K of sum_i (h / L1_i) |g_i|* <= eps     2 D h^2 S / eps^2 + 2 D h / eps
//   PL           min over k < K of f(X_k) - inf f <= eps              D sum L0 / e + D max L1 sqrt(2 / e)
//   PL, L1 = 0   f(X_K) - inf f <= eps                                (max L0 / mu) log(D / eps)
//
// with g_i = grad_i f(X_k), D = Delta0 = f(X_0) - inf f, S = sum(L0 / L1^2), e = mu eps and h = p / sum(1 /
// L1), the harmonic mean of L1, which makes the weights sum to p. PL is the Polyak-Lojasiewicz condition,
// sum_i |grad_i f|*^2 >= 2 mu (f - inf f).
//
// Paper: theorem 1 of the main text is the weighted one; the appendix proves both (theorem 1, full version),
// then the PL theorem. The paper's remark that compares the two is the wrong way round: the first term of the
// weighted count is smaller when large L0 come with LARGE L1, so that L0 / L1 grows with L1 too. For L0 = (2, 1),
// L1 = (1, 2), which the remark calls favourable, it is 4, larger than sum L0 = 3.

#pragma once

#include "gluon/theory/guarantee.h"

namespace gluon::theory {

/// |g|* / (L0 + L1 |g|*), 0 for a zero gradient.
double theorem1_radius(const LayerConstants& layer, double gradient_dual_norm);

/// Each throws InputError on constants that its theorem does not allow: see Constants::validate(); the weighted
/// count needs L1 > 0 in all layers, PL needs mu > 0, and PL without L1 also mu <= max L0, which every function has.
Guarantee theorem1(const Constants& constants);
Guarantee theorem1_weighted(const Constants& constants);
Guarantee theorem_pl(const Constants& constants, double mu);
Guarantee theorem_pl_without_l1(const Constants& constants, double mu);

/// K(eps) = 2 Delta0 (a / eps^2 + b / eps) and its inverse: the rate that theorems 1 and 2 share, from
/// K eps^2 / (2 (a + b eps)) <= Delta0.
struct QuadraticRate {
  double a = 0;
  double b = 0;
  double initial_gap = 0;

  double needed(double precision) const;
  double bound(double iterations) const;
};

/// Theorem 1 has a = sum(L0) and b = max(L1), with weights a = h^2 sum(L0 / L1^2) and b = h. The weighted functions
/// throw InputError, which starts with `who`, when some L1 is 0.
QuadraticRate plain_rate(const Constants& constants);
QuadraticRate weighted_rate(const Constants& constants, std::string_view who);

/// The weights of the promise: 1, or h / L1_i.
std::vector<double> plain_weights(const Constants& constants);
std::vector<double> weighted_weights(const Constants& constants, std::string_view who);

}  // namespace gluon::theory
