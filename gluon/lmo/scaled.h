// A norm times a positive factor: |x| = c base(x), |g|* = base*(g) / c, lmo(g) = base_lmo(g) / c.
//
// Every width factor of every preset is one of these, e.g. scaled(sqrt(n/m),spectral) for a hidden layer of Scion.

#pragma once

#include "gluon/lmo/norm.h"

namespace gluon {

class ScaledNorm : public Norm {
 public:
  /// Throws InputError unless `factor` is positive and finite.
  ScaledNorm(double factor, NormPtr base);
  std::string name() const override;
  LmoForm lmo_form() const override;

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;

 private:
  double factor_;
  NormPtr base_;
};

}  // namespace gluon
