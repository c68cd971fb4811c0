// The largest Euclidean length of a row (2->inf) or of a column (1->2).
//
//   rows:     |x| = max_i |x_i:|_2,  |g|* = sum_i |g_i:|_2,  lmo(g)_i: = -g_i: / |g_i:|_2
//   columns:  the same along the other axis
//
// A zero row (column) stays zero. An embedding stored as (vocabulary, width) holds one token per row: Scion's
// 1->RMS norm of the transposed weight is scaled(1/sqrt(n),rows) here.

#pragma once

#include "gluon/lmo/norm.h"

namespace gluon {

class RowsColumnsNorm : public Norm {
 public:
  enum class Axis { kRows, kColumns };

  explicit RowsColumnsNorm(Axis axis) : axis_(axis) {}
  std::string name() const override;

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;

 private:
  int64_t reduced_dim() const { return axis_ == Axis::kRows ? 2 : 1; }

  Axis axis_;
};

}  // namespace gluon
