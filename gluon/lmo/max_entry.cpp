#include "gluon/lmo/max_entry.h"

#include <ATen/ATen.h>

namespace gluon {

std::string MaxEntryNorm::name() const { return "max_entry"; }

at::Tensor MaxEntryNorm::compute_norm(const at::Tensor& x) const { return x.abs().amax({1, 2}); }

at::Tensor MaxEntryNorm::compute_dual_norm(const at::Tensor& g) const { return g.abs().sum({1, 2}); }

at::Tensor MaxEntryNorm::compute_lmo(const at::Tensor& g) const { return g.sign().neg_(); }

}  // namespace gluon
