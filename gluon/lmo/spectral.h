// The spectral norm (2->2): |x| = sigma_max(x), |g|* = sum of the singular values, lmo(g) = -U V^T.
//
// The dual norm is exact (singular values), and so is the norm, except on a GPU where no gradient of it is wanted:
// there it comes from products alone, up to 5e-4 too small (largest_singular_value.h). The LMO is as exact as the
// orthogonalizer it is given: with "svd" the identities of norm.h hold to rounding; an iteration trades accuracy
// for speed, and <g, lmo(g)> is then the dual norm up to its error. With this norm Gluon is Muon.

#pragma once

#include "gluon/lmo/norm.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon {

class SpectralNorm : public Norm {
 public:
  explicit SpectralNorm(OrthogonalizerPtr orthogonalizer);
  std::string name() const override;
  LmoForm lmo_form() const override { return orthogonalizer_->polar_form(); }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;

 private:
  OrthogonalizerPtr orthogonalizer_;
};

}  // namespace gluon
