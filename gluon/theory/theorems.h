// The paper's theorems, and its table 1 with earlier results. D = Delta0 = f(X_0) - inf f, log is natural.
//
// Deterministic Gluon has full gradients g_i = grad_i f(X_k), no momentum and radii t = |g|* / (L0 + L1 |g|*):
//
//   theorem      promise                                              K, rounded up
//   1            min over k < K of sum_i |g_i|* <= eps                2 D sum L0 / eps^2 + 2 D max L1 / eps
//   1 weighted   min over k < K of sum_i (h / L1_i) |g_i|* <= eps     2 D h^2 S / eps^2 + 2 D h / eps
//   PL           min over k < K of f(X_k) - inf f <= eps              D sum L0 / e + D max L1 sqrt(2 / e)
//   PL, L1 = 0   f(X_K) - inf f <= eps                                (max L0 / mu) log(D / eps)
//
// with S = sum(L0 / L1^2), e = mu eps and h = p / sum(1 / L1), the harmonic mean of L1, which makes the weights sum
// to p. PL is the Polyak-Lojasiewicz condition, sum_i |grad_i f|*^2 >= 2 mu (f - inf f). Theorem 1 of the paper's main
// text is the weighted one; the appendix proves both, then the PL theorem. The paper's remark that compares the two is
// the wrong way round: the first term of the weighted count is smaller when large L0 come with LARGE L1, so that
// L0 / L1 grows with L1 too. For L0 = (2, 1), L1 = (1, 2), which the remark calls favourable, it is 4, larger than
// sum L0 = 3.
//
// Theorem 2: stochastic gradients g, no momentum, t = (1-z) |g|* / (L0 + (1+z) L1 |g|*), unbiased gradients with
// relative noise |g_i - grad_i f|* <= z |g_i|* almost surely, z < 1. Both counts of theorem 1 hold for E|grad_i f|*,
// divided by (1-z)^2 and with (1+z) L1 instead of L1. (The paper's weighted statement omits the E that its proof has.)
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
//   The constants still hold, because they are loose: tests/theory/theorem3_test.cpp adds up the sums.
//
// Table 1, for min over k < K of sum_i E|grad_i f(X_k)|* <= eps; rates leave out logarithms:
//
//   result                    stochastic   (L0, L1)   rate       radius             1 - beta
//   Kovalev 2025, theorem 1   no           no         K^(-1/2)   const ~ K^(-1/2)   -
//   Kovalev 2025, theorem 2   yes          no         K^(-1/4)   const ~ K^(-3/4)   const ~ K^(-1/2)
//   Li 2025, theorem 2.1      yes          no         K^(-1/4)   const ~ K^(-3/4)   const ~ K^(-1/2)
//   Pethick 2025, lemma 5.4   yes          no         K^(-1/4)   const ~ K^(-3/4)   ~ k^(-1/2)
//   NEW: theorem 1            no           yes        K^(-1/2)   adaptive           -
//   NEW: theorem 3            yes          yes        K^(-1/4)   ~ k^(-3/4)         ~ k^(-1/2)
//
// The paper's own results have K from the theorems above; sum_i t_i |g_i|* >= min t_i sum_i |g_i|* turns theorem 3's
// promise for eps min t_i into that of the table. Li's result is for one layer. All earlier ones assume that f is
// L-smooth over the whole space, |grad f(X) - grad f(Y)|* <= L |X - Y| in the norm max_i |X_i|. Without noise they need
// K = ceil(6 L Delta0 / eps^2) iterations (paper, after theorem 1); for the stochastic rows the paper gives no
// constants. With L1 = 0, f is L-smooth with L = sum_i L0_i, the smallest L that follows from the layers' constants.
// The paper's lemma for the other direction (L-smoothness gives L0_i <= L, L1 = 0) holds for one layer only: it moves
// one layer at a time, but the assumption is about all pairs; f(x, y) = x y is smooth and has no layer-wise constants.

#pragma once

#include "gluon/theory/guarantee.h"

namespace gluon::theory {

/// Each throws InputError on constants that its theorem does not allow: see Constants::validate(). The weighted counts
/// need L1 > 0 in all layers, PL needs mu > 0, PL without L1 also mu <= max L0, which every function has, and
/// theorem 2 needs 0 <= zeta < 1.
Guarantee theorem1(const Constants& constants);
Guarantee theorem1_weighted(const Constants& constants);
Guarantee theorem_pl(const Constants& constants, double mu);
Guarantee theorem_pl_without_l1(const Constants& constants, double mu);
Guarantee theorem2(const Constants& constants, double zeta);
Guarantee theorem2_weighted(const Constants& constants, double zeta);

/// t_i is LayerConstants::t, by default theorem3_largest_t(). Throws InputError on constants that the theorem does
/// not allow (see Constants::validate(); sigma >= 0; t_i <= 1 / (12 L1_i)), when t_i is missing and 1 / (12 L1_i) is
/// infinite, and when the bound overflows.
Guarantee theorem3(const Constants& constants, double sigma);

/// The radii of theorems 1 and 2; 0 for a zero gradient.
double theorem1_radius(const LayerConstants& layer, double gradient_dual_norm);
double theorem2_radius(const LayerConstants& layer, double zeta, double gradient_dual_norm);

/// beta_k and t_i^k for k = 0, 1, ...
double theorem3_beta(int64_t step);
double theorem3_radius(double t, int64_t step);

/// 1 / (12 L1), the largest t_i that theorem 3 allows; infinity for L1 = 0.
double theorem3_largest_t(double l1);

/// The noise of the gradients: none, theorem 2's relative noise, or theorem 3's bounded variance.
enum class NoiseKind { kNone, kRelative, kVariance };

struct TableRow {
  std::string source;
  bool stochastic = false;
  bool layer_wise = false;  // holds under layer-wise (L0, L1)-smoothness
  std::string rate;
  std::string radius;
  std::string one_minus_beta;
  std::string obstacle{};              // why it does not apply; empty when it does
  std::optional<double> iterations{};  // K for eps, where it applies and its constants are known
};

/// The rows of table 1 above for the given constants; `sigma` is theorem 3's, for bounded variance. Throws InputError
/// unless the constants are valid, eps > 0 and sigma >= 0, and when the K of a result without noise overflows.
std::vector<TableRow> table1(const Constants& constants, NoiseKind noise, double precision,
                             std::optional<double> sigma = std::nullopt);

}  // namespace gluon::theory
