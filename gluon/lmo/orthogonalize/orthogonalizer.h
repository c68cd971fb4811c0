// Orthogonalizer: the polar factor of a batch of matrices, the work inside the spectral norm's LMO.
//
// For G = U S V^T (reduced SVD, only the non-zero singular values) the polar factor is U V^T. Exactly it
// costs an SVD; the iterations reach it with matrix products alone, by odd polynomials of the singular values, such as
//
//   X <- a X + b (X X^T) X + c (X X^T)^2 X          s <- a s + b s^3 + c s^5
//
// Every implementation is scale-invariant (the input is normalised in its own precision, with no epsilon
// added), maps zero to zero and leaves its argument alone.
//
//   svd                      exact
//   newton_schulz[:T]        T steps (5) with Jordan's coefficients, as public Muon: ends in 0.68..1.13
//   polar_express[:T[:L]]    T steps (5), optimal for singular values in [L, 1] after normalisation; L is 5e-3 up
//                            to 4 steps, 1e-3 up to 7, 1e-4 from 8 on
//   polar_squares[:N]        N = 9 (the default) or 8 squares in three steps of degree up to 17: closer to the exact one
//                            than polar_express:5, in fewer products
//   gram:NAME, direct:NAME   an iteration forced into one of its two forms; alone it picks the cheaper one
//   float32:NAME             an iteration kept in float32 also where the GPU's kernels would take float16
//   bfloat16:NAME            an iteration in bfloat16, in the direct form: bfloat16:newton_schulz:5 as public Muon

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "gluon/core/lmo_form.h"

namespace gluon {

class Orthogonalizer {
 public:
  virtual ~Orthogonalizer() = default;

  /// The polar factor of each matrix of `batch` (b, m, n), same shape and dtype; half precision is computed
  /// in float32 (bfloat16:NAME: in bfloat16). Throws InputError unless `batch` is a floating point tensor of
  /// rank 3.
  at::Tensor polar(const at::Tensor& batch) const;

  /// The LMO -polar(g) as a formula where half precision is accurate enough for it; kOther elsewhere.
  virtual LmoForm polar_form() const { return {}; }

  /// The name that make_orthogonalizer() turns back into this object.
  virtual std::string name() const = 0;

 private:
  /// `batch` is (b, m, n), contiguous, float32 or float64, and not empty.
  virtual at::Tensor compute_polar(const at::Tensor& batch) const = 0;
};

using OrthogonalizerPtr = std::shared_ptr<const Orthogonalizer>;

/// The orthogonalizer called `name` (the table above). Throws InputError that lists what is allowed.
OrthogonalizerPtr make_orthogonalizer(std::string_view name);

}  // namespace gluon
