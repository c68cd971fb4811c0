// Stochastic Gluon. g is the stochastic gradient, D = Delta0, log natural.
//
// Theorem 2: no momentum, t = (1-z) |g|* / (L0 + (1+z) L1 |g|*), unbiased gradients with relative noise
// |g_i - grad_i f|* <= z |g_i|* almost surely, z < 1. Theorem 1's counts, divided by (1-z)^2 and with (1+z) L1
// instead of L1:
//
//   2            min over k < K of sum_i E|grad_i f(X_k)|* <= eps
//                K = 2 D sum L0 / ((1-z)^2 eps^2) + 2 D (1+z) max L1 / ((1-z)^2 eps)
//   2 weighted   the same with weights h / L1_i, h^2 sum(L0 / L1^2) instead of sum L0 and h instead of max L1
//                (the paper's statement omits the E that its proof has)
//
// Theorem 3: beta_k = 1 - (k+1)^(-1/2), t_k = t_i (k+1)^(-3/4), unbiased gradients with E|g_i - grad_i f|*^2
// <= sigma^2. For every K:
//
//   min over k < K of sum_i t_i E|grad_i f(X_k)|*
//     <= K^(-1/4) (s D + sum_i [s c_i sigma t_i (7 + 2 sqrt(2) e log K) + s L0_i t_i^2 (87/2 + 14 log K)])
//
// with s = 1 for L1 = 0 (any t_i) and s = 2 for t_i <= 1 / (12 L1_i). The paper (theorem 3, appendix, with
// explicit constants) states s = 2 for t_i = 1 / (12 L1_i) only and requires L1 = 0 in all layers or in none;
// its proof also covers smaller t_i and mixtures, because it only needs 5.1 L1_i t_i <= 1/2. Two steps of the
// proof need a correction:
//
// - c_i = 1 holds for Euclidean norms only. The proof adds noise as sqrt(sum E|.|*^2), which needs the
//   orthogonality of an inner product. In general E|sum w_k e_k|* <= c sigma sqrt(sum w_k^2) with c = b / a for
//   a |.|_F <= |.|* <= b |.|_F: sqrt(min(m, n)) for spectral, sqrt(m n) for max_entry, sqrt(n) for columns,
//   sqrt(m) for rows. This is LayerConstants::noise_factor.
// - |grad_i f(X_k) - grad_i f(X_{k-1})|* is bounded with t_k, the radius of the next step, instead of t_{k-1}.
//   The constants still hold, because they are loose: tests/theory/theorem3_sums_test.cpp adds up the sums.

#pragma once

#include "gluon/theory/guarantee.h"

namespace gluon::theory {

/// (1-z) |g|* / (L0 + (1+z) L1 |g|*), 0 for a zero gradient.
double theorem2_radius(const LayerConstants& layer, double zeta, double gradient_dual_norm);

/// Each throws InputError on constants that its theorem does not allow: see Constants::validate(); 0 <= zeta < 1;
/// the weighted count needs L1 > 0 in all layers.
Guarantee theorem2(const Constants& constants, double zeta);
Guarantee theorem2_weighted(const Constants& constants, double zeta);

/// beta_k and t_i^k for k = 0, 1, ...
double theorem3_beta(int64_t step);
double theorem3_radius(double t, int64_t step);

/// 1 / (12 L1), the largest t_i that theorem 3 allows; infinity for L1 = 0.
double theorem3_largest_t(double l1);

/// t_i is LayerConstants::t, by default theorem3_largest_t(). Throws InputError on constants that the theorem does
/// not allow (see Constants::validate(); sigma >= 0; t_i <= 1 / (12 L1_i)), when t_i is missing and 1 / (12 L1_i) is
/// infinite, and when the bound overflows.
Guarantee theorem3(const Constants& constants, double sigma);

}  // namespace gluon::theory
