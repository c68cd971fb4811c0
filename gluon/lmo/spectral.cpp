#include "gluon/lmo/spectral.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "gluon/check.h"

namespace gluon {
namespace {

// (b, min(m, n)). On the CPU one matrix per thread: LAPACK gains nothing from threads at the sizes of layers.
at::Tensor singular_values(const at::Tensor& x) {
  if (!x.is_cpu()) return at::linalg_svdvals(x);
  const at::Tensor values = at::empty({x.size(0), std::min(x.size(1), x.size(2))}, x.options());
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) values[i].copy_(at::linalg_svdvals(x[i]));
  });
  return values;
}

}  // namespace

SpectralNorm::SpectralNorm(OrthogonalizerPtr orthogonalizer) : orthogonalizer_(std::move(orthogonalizer)) {
  GLUON_CHECK(orthogonalizer_ != nullptr, "spectral: expected an orthogonalizer, got none");
}

std::string SpectralNorm::name() const {
  const std::string inner = orthogonalizer_->name();
  return inner == kDefaultOrthogonalizer ? "spectral" : join("spectral(", inner, ")");
}

at::Tensor SpectralNorm::compute_norm(const at::Tensor& x) const { return singular_values(x).amax(-1); }

at::Tensor SpectralNorm::compute_dual_norm(const at::Tensor& g) const { return singular_values(g).sum(-1); }

at::Tensor SpectralNorm::compute_lmo(const at::Tensor& g) const { return orthogonalizer_->polar(g).neg_(); }

}  // namespace gluon
