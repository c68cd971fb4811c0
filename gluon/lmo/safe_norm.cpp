#include "gluon/lmo/safe_norm.h"

#include <ATen/ATen.h>

namespace gluon {

at::Tensor largest_entry(const at::Tensor& x, at::IntArrayRef dims) {
  // Both extremes instead of abs(): no temporary of full size.
  return at::maximum(x.amax(dims, /*keepdim=*/true), x.amin(dims, /*keepdim=*/true).neg());
}

at::Tensor one_if_zero(const at::Tensor& divisor) { return divisor.masked_fill(divisor == 0, 1); }

at::Tensor safe_length(const at::Tensor& x, at::IntArrayRef dims) {
  if (x.numel() == 0) return at::linalg_vector_norm(x, 2, dims, /*keepdim=*/true);
  const at::Tensor largest = largest_entry(x, dims);
  return at::linalg_vector_norm(x / one_if_zero(largest), 2, dims, /*keepdim=*/true) * largest;
}

at::Tensor safe_normalized(const at::Tensor& x, at::IntArrayRef dims) {
  if (x.numel() == 0) return x.clone();
  at::Tensor reduced = x / one_if_zero(largest_entry(x, dims));
  return reduced.div_(one_if_zero(at::linalg_vector_norm(reduced, 2, dims, /*keepdim=*/true)));
}

}  // namespace gluon
