#include "gluon/lmo/spectral.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "gluon/core/check.h"
#include "gluon/lmo/largest_singular_value.h"

namespace gluon {
namespace {

bool needs_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

// (b, min(m, n)). On the CPU one matrix per thread: LAPACK gains nothing from threads at the sizes of layers.
at::Tensor singular_values(const at::Tensor& x) {
  if (!x.is_cpu() || needs_gradient(x)) return at::linalg_svdvals(x);
  const at::Tensor values = at::empty({x.size(0), std::min(x.size(1), x.size(2))}, x.options());
  const int64_t bytes = values.size(1) * static_cast<int64_t>(values.element_size());
  char* const out = static_cast<char*>(values.data_ptr());
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    // By address: a thread does not inherit inference mode, in which `values` may have been made.
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor found = at::linalg_svdvals(x[i]).contiguous();
      std::memcpy(out + i * bytes, found.data_ptr(), static_cast<std::size_t>(bytes));
    }
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

at::Tensor SpectralNorm::compute_norm(const at::Tensor& x) const {
  return x.is_cuda() && !needs_gradient(x) ? largest_singular_values(x) : singular_values(x).amax(-1);
}

at::Tensor SpectralNorm::compute_dual_norm(const at::Tensor& g) const { return singular_values(g).sum(-1); }

at::Tensor SpectralNorm::compute_lmo(const at::Tensor& g) const { return orthogonalizer_->polar(g).neg_(); }

}  // namespace gluon
