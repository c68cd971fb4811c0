// The largest entry (1->inf): |x| = max |x_ij|, |g|* = sum |g_ij|, lmo(g) = -sign(g).
//
// With this norm Gluon is sign descent; Scion uses it for the embedding and the head, scaled by the width n.

#pragma once

#include "gluon/lmo/norm.h"

namespace gluon {

class MaxEntryNorm : public Norm {
 public:
  LmoForm lmo_form() const override { return {.kind = LmoForm::Kind::kSign}; }
  std::string name() const override;

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;
};

}  // namespace gluon
