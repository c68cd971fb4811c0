// The Euclidean (Frobenius) norm, its own dual: lmo(g) = -g / |g|.
//
// With this norm Gluon is layer-wise normalized descent; Scion uses it for biases, scaled by 1 / sqrt(C).

#pragma once

#include "gluon/lmo/norm.h"

namespace gluon {

class EuclideanNorm : public Norm {
 public:
  std::string name() const override;

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;
};

}  // namespace gluon
