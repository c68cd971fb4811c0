#include "gluon/lmo/euclidean.h"

#include <ATen/ATen.h>

#include "gluon/lmo/safe_norm.h"

namespace gluon {

std::string EuclideanNorm::name() const { return "euclidean"; }

at::Tensor EuclideanNorm::compute_norm(const at::Tensor& x) const { return safe_length(x, {1, 2}).flatten(); }

at::Tensor EuclideanNorm::compute_dual_norm(const at::Tensor& g) const { return compute_norm(g); }

at::Tensor EuclideanNorm::compute_lmo(const at::Tensor& g) const { return safe_normalized(g, {1, 2}).neg_(); }

}  // namespace gluon
