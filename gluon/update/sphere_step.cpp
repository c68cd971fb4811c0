#include "gluon/update/sphere_step.h"

#include <ATen/ATen.h>

#include "gluon/lmo/safe_norm.h"

namespace gluon {
namespace {

// Of all entries, in float64: it neither overflows where float32 does, nor does the order of the sum show in its result
// in float32, which threads and ranks could change.
at::Tensor inner_product(const at::Tensor& a, const at::Tensor& b) { return at::mul(a, b).sum(); }

// Nearer to the centre, relative to the lengths of X and t U, the direction of X + t U would be that of its rounding.
constexpr double kCentre = 1e-4;

// X <- keep X + add U
struct Factors {
  at::Tensor keep, add;  // scalars in float64 on the matrix's device
};

Factors factors(const at::Tensor& x, const at::Tensor& u, const at::Tensor& eta, double sphere) {
  const at::Tensor length = inner_product(x, x).sqrt_(), reach = inner_product(u, u).sqrt_();
  const at::Tensor a = inner_product(x, u) / one_if_zero(length * reach);
  const at::Tensor unit = (length > 0).to(at::kDouble);  // |Norm(X)|
  const at::Tensor q = (unit + 2 * a * eta + eta * eta).clamp_min_(0).sqrt_();
  const at::Tensor moves = (reach > 0).logical_and_(eta > 0).logical_and_(q > kCentre * (unit + eta));
  return {at::where(moves, sphere / one_if_zero(length * q), at::ones_like(q)),
          at::where(moves, sphere * eta / one_if_zero(reach * q), at::zeros_like(q))};
}

}  // namespace

void step_on_sphere(const BatchStep& batch, double sphere) {
  const at::Tensor headings = batch.heading.to(batch.radius.scalar_type());
  const at::Tensor eta = batch.radius.to(at::kDouble);
  for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    at::Tensor parameter = batch.blocks[i].of(batch.blocks[i].layer.parameter);
    const at::Tensor heading = headings.select(0, index).reshape(parameter.sizes());
    // Half precision is rounded once.
    const at::Tensor wide = parameter.to(heading.scalar_type());
    const auto [keep, add] = factors(wide.to(at::kDouble), heading.to(at::kDouble), eta[index], sphere);
    wide.mul_(keep).addcmul_(heading, add.to(heading.scalar_type()));
    if (!wide.is_same(parameter)) parameter.copy_(wide);
  }
}

}  // namespace gluon
