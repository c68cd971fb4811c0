#include "gluon/lmo/orthogonalize/svd.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace gluon {
namespace {

double epsilon_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

}  // namespace

at::Tensor SvdOrthogonalizer::compute_polar(const at::Tensor& batch) const {
  // Entries near 1: the squares inside the SVD would overflow at 1e30 in float32 and vanish at 1e-30.
  const at::Tensor largest = at::maximum(batch.amax({1, 2}, true), batch.amin({1, 2}, true).neg());
  const at::Tensor scaled = batch / largest.masked_fill(largest == 0, 1);

  const auto [u, sigma, vh] = at::linalg_svd(scaled, /*full_matrices=*/false);
  const double tolerance = std::max(batch.size(1), batch.size(2)) * epsilon_of(batch.scalar_type());
  const at::Tensor kept = (sigma > tolerance * sigma.amax({1}, true)).to(batch.scalar_type());
  return at::bmm(u * kept.unsqueeze(1), vh);
}

}  // namespace gluon
