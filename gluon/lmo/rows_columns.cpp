#include "gluon/lmo/rows_columns.h"

#include <ATen/ATen.h>

#include "gluon/lmo/safe_norm.h"

namespace gluon {

std::string RowsColumnsNorm::name() const { return axis_ == Axis::kRows ? "rows" : "columns"; }

at::Tensor RowsColumnsNorm::compute_norm(const at::Tensor& x) const {
  return safe_length(x, {reduced_dim()}).amax({1, 2});
}

at::Tensor RowsColumnsNorm::compute_dual_norm(const at::Tensor& g) const {
  return safe_length(g, {reduced_dim()}).sum({1, 2});
}

at::Tensor RowsColumnsNorm::compute_lmo(const at::Tensor& g) const {
  return safe_normalized(g, {reduced_dim()}).neg_();
}

}  // namespace gluon
