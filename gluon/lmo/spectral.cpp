#include "gluon/lmo/spectral.h"

#include <ATen/ATen.h>

#include "gluon/check.h"

namespace gluon {

SpectralNorm::SpectralNorm(OrthogonalizerPtr orthogonalizer) : orthogonalizer_(std::move(orthogonalizer)) {
  GLUON_CHECK(orthogonalizer_ != nullptr, "spectral: expected an orthogonalizer, got none");
}

std::string SpectralNorm::name() const {
  const std::string inner = orthogonalizer_->name();
  return inner == kDefaultOrthogonalizer ? "spectral" : join("spectral(", inner, ")");
}

at::Tensor SpectralNorm::compute_norm(const at::Tensor& x) const { return at::linalg_svdvals(x).amax(-1); }

at::Tensor SpectralNorm::compute_dual_norm(const at::Tensor& g) const {
  return at::linalg_svdvals(g).sum(-1);
}

at::Tensor SpectralNorm::compute_lmo(const at::Tensor& g) const { return orthogonalizer_->polar(g).neg_(); }

}  // namespace gluon
