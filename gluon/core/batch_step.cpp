#include "gluon/core/batch_step.h"

#include <ATen/ATen.h>

#include "gluon/core/check.h"

namespace gluon {

at::Tensor BatchStep::momentum_dual_norm() const {
  GLUON_CHECK(direction.defined(), "momentum_dual_norm: AdamW's layers have no direction");
  // One batched dot product per matrix: no (c, m, n) temporary.
  const int64_t c = momentum.size(0);
  return at::bmm(momentum.reshape({c, 1, -1}), direction.to(momentum.scalar_type()).reshape({c, -1, 1}))
      .flatten()
      .neg_();
}

}  // namespace gluon
