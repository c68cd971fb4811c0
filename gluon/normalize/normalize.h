// Normalize: divides the LMO's direction by the size that its rows, or its entries, have had in the steps so far.
//
//   O = lmo(M) / u                        u: the RMS entry of an LMO in the norm, Norm::lmo_length() / sqrt(m n)
//   v <- beta2 v + (1 - beta2) S(O)       v_{-1} = 0
//   N = O / (sqrt(v) + eps)               0 where the divisor is 0, which it is only where O is
//   heading = N |lmo(M)|_F / |N|_F
//
//   name                  S(O), the second moment
//   none                  no normalisation: the layer moves along lmo(M)
//   normuon(beta2[,eps])  mean over the columns of O*O, one value per row   NorMuon (Li et al., arXiv 2510.05491)
//   adamuon(beta2[,eps])  O*O, one value per entry                          AdaMuon (Si et al., arXiv 2507.11005)
//
// In the flow: LMO direction -> heading -> update. The heading is as long as the direction in the Frobenius norm, but
// a step of radius t along it has the length t |heading| in the layer's norm: where that is spectral, between t and
// sqrt(min(m, n)) t.
//
// The sources, and what differs here:
// * v's bias is not corrected, as in NorMuon's code. AdaMuon's corrects it, which changes nothing: it is one factor for
//   all of v, and the last line divides it out.
// * O / sqrt(v) is bounded without eps, by 1 / sqrt(1 - beta2) for entries and sqrt(n / (1 - beta2)) for rows, so eps is
//   0 unless given. NorMuon's code has 1e-10 and AdaMuon's 1e-8 beside entries of U V^T; here it counts in units of u,
//   as v does, so that the scale of a norm changes nothing.
// * NorMuon's code takes rows whatever the shape, as here; modded-nanogpt and nanochat take the longer side.
// * The papers bring the RMS entry to 0.2, which is muon's scale match_adam. NorMuon's code restores the length of the
//   iteration's result, as here.
// * AdaMuon's paper takes the LMO of sign(M) in its later versions. Here, as in its repository's code, it is that of M.

#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string>
#include <string_view>

namespace gluon {

class Normalize {
 public:
  Normalize() = default;  // none

  /// By name: {.normalize = "normuon(0.95)"} reads as it should. Throws InputError that lists the names.
  template <std::convertible_to<std::string_view> Text>
  Normalize(const Text& name) : Normalize(parse(name)) {}  // NOLINT(google-explicit-constructor)

  /// Throw InputError unless 0 <= beta2 < 1 and eps >= 0.
  static Normalize normuon(double beta2, double eps = 0);
  static Normalize adamuon(double beta2, double eps = 0);

  bool is_none() const { return kind_ == Kind::kNone; }

  /// The width of v for matrices with `cols` columns: 1, or `cols` where every entry has its own.
  int64_t state_cols(int64_t cols) const { return kind_ == Kind::kRows ? 1 : cols; }

  /// v, (b, m, state_cols(n)), of second moments given for every entry, (b, m, n).
  at::Tensor state_of(const at::Tensor& entries) const;

  /// Folds directions (b, m, n) of unit u, float32 or float64, into v, in place.
  void fold(const at::Tensor& direction, at::Tensor second, double unit) const;

  /// Their headings with a v that they have been folded into.
  at::Tensor heading(const at::Tensor& direction, const at::Tensor& second, double unit) const;

  double beta2() const { return beta2_; }
  double eps() const { return eps_; }

  /// The name that the constructor turns back into this object.
  std::string name() const;

 private:
  enum class Kind { kNone, kRows, kEntries };
  Normalize(Kind kind, double beta2, double eps);
  static Normalize parse(std::string_view name);

  Kind kind_ = Kind::kNone;
  double beta2_ = 0;
  double eps_ = 0;
};

}  // namespace gluon
