#include "gluon/update/device_lmo.h"

#include <ATen/ATen.h>

#include "gluon/kernels/kernels.h"

namespace gluon {

at::Tensor device_lmo(const Norm& norm, const at::Tensor& g) {
  const LmoForm form = norm.lmo_form();
  const bool by_kernels =
      form.kind == LmoForm::Kind::kPolar && g.scalar_type() == at::kFloat && g.numel() > 0 && kernels::available(g);
  return by_kernels ? kernels::polar_lmo(g, form) : norm.lmo(g);
}

}  // namespace gluon
