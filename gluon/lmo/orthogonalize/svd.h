// The exact polar factor: G = U S V^T (reduced SVD) gives U V^T.
//
// Singular values below max(m, n) eps sigma_max are rounding of zero and their vectors are arbitrary, so they
// are left out; a zero matrix gives zero. Slow (tens of times the iterations), and the measure of all of
// them.

#pragma once

#include <string>

#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon {

class SvdOrthogonalizer : public Orthogonalizer {
 public:
  std::string name() const override { return "svd"; }

 private:
  at::Tensor compute_polar(const at::Tensor& batch) const override;
};

}  // namespace gluon
