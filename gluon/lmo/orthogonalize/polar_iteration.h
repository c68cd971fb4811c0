// PolarIteration: the polar factor by odd polynomials of the singular values, matrix products only.
//
// With R = X X^T on the smaller side (k = min(m, n), l = max(m, n)) a step multiplies X by a polynomial Z of R, which
// takes k^3 flops for every square (core/lmo_form.h). There are two ways to go on from it, with the same result in
// exact arithmetic:
//
//   restart   X <- Z X,  R <- X X^T           3 k^2 l flops, as accurate as X itself
//   update    Q <- Q Z,  R <- Z R Z           3 k^3 flops, X waits for Q X at the end
//
// (Q, Z and R are symmetric and commute, so that only one triangle of their products is computed.) The direct
// form restarts after every step, the Gram form only where rounding asks for it; alone, the cheaper one is taken.
//
// X is first divided by its largest entry, then by safety times a bound on its largest singular value, at any
// scale of the input. Both bounds are free once R is there:
//
//   Frobenius    |X|_F = sqrt(tr R)          what public Muon divides by
//   Schatten 4   sqrt(|R|_F)                 at most |X|_F and up to k^(1/4) times smaller: a 768 x 768 Gaussian
//                                            starts at 0.32 instead of 0.07, worth more than one step

#pragma once

#include <string>
#include <vector>

#include "gluon/lmo/orthogonalize/coefficients.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon {

/// Matrices longer than this many times their smaller side go on in the Gram form. Products of one triangle reach about
/// 0.8 of the rate of full ones, so here 3 k^3 and 3 k^2 l take the same time.
inline constexpr double kGramAspect = 1.25;

/// What the largest singular value is bounded by.
enum class SingularBound { kFrobenius, kSchatten4 };

/// The steps for one matrix shape: after step t, X is multiplied and R recomputed where restart[t], always at the
/// last step.
struct PolarPlan {
  std::vector<PolarStep> steps;
  std::vector<bool> restart;
  SingularBound bound = SingularBound::kFrobenius;
  double safety = 1;
};

/// Runs `plan` on a contiguous CPU batch of float32 or float64, one matrix at a time in a workspace per thread.
at::Tensor run_with_blas(const at::Tensor& batch, const PolarPlan& plan);

/// Runs `plan` on the stacked batch with ATen products, on any device: the specification of the fast paths.
at::Tensor run_with_aten(const at::Tensor& batch, const PolarPlan& plan);

/// Runs `plan` in the direct form, whatever its restarts, as public Muon: X <- a X + (Z - a I) X, a the multiple of I in
/// Z, with every matrix in bfloat16 and products accumulated in float32, after a normalisation in float32. The result
/// has the batch's dtype.
at::Tensor run_in_bfloat16(const at::Tensor& batch, const PolarPlan& plan);

struct PolarOptions {
  enum class Form { kAuto, kDirect, kGram };
  enum class Precision { kFast, kFloat32, kBFloat16 };

  std::string name;              // the iteration's, without the form
  std::vector<PolarStep> steps;  // at least one
  SingularBound bound = SingularBound::kFrobenius;
  double safety = 1;  // the first step expects singular values in [0, 1 / safety]
  Form form = Form::kAuto;
  // kFloat32: float32 also where the kernels would take float16; kBFloat16: bfloat16 everywhere, direct form only
  Precision precision = Precision::kFast;
};

class PolarIteration : public Orthogonalizer {
 public:
  /// Throws InputError without steps, with a safety below 1 or for the Gram form in bfloat16.
  explicit PolarIteration(PolarOptions options);

  std::string name() const override;

  /// kPolar unless the name asks for a form, a precision or the Frobenius bound: GPU kernels choose their own form and
  /// bound singular values by Schatten 4.
  LmoForm polar_form() const override;

  /// What polar() does with m x n matrices.
  PolarPlan plan(int64_t m, int64_t n) const;

 private:
  at::Tensor compute_polar(const at::Tensor& batch) const override;

  PolarOptions options_;
};

}  // namespace gluon
