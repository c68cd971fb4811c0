#include "gluon/lmo/norm.h"

#include <ATen/ATen.h>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/core/spec.h"
#include "gluon/lmo/euclidean.h"
#include "gluon/lmo/max_entry.h"
#include "gluon/lmo/rows_columns.h"
#include "gluon/lmo/scaled.h"
#include "gluon/lmo/spectral.h"
#include "gluon/lmo/width_factor.h"

namespace gluon {
namespace {

constexpr std::string_view kNames =
    "spectral, spectral(ORTHOGONALIZER), max_entry, euclidean, columns, rows, scaled(FACTOR,NORM)";

at::Tensor checked(const at::Tensor& x, const Norm& norm) {
  GLUON_CHECK(x.dim() == 3, norm.name(), ": expected (b, m, n), got ", x.sizes());
  GLUON_CHECK(at::isFloatingType(x.scalar_type()), norm.name(), ": expected a floating point tensor, got ",
              x.scalar_type());
  return x.to(compute_type(x.scalar_type()));
}

}  // namespace

at::Tensor Norm::norm(const at::Tensor& x) const { return compute_norm(checked(x, *this)); }

at::Tensor Norm::dual_norm(const at::Tensor& g) const { return compute_dual_norm(checked(g, *this)); }

at::Tensor Norm::lmo(const at::Tensor& g) const { return compute_lmo(checked(g, *this)).to(g.scalar_type()); }

at::Tensor Norm::step_direction(const at::Tensor& g, double factor) const {
  return compute_step_direction(checked(g, *this), factor);
}

at::Tensor Norm::compute_step_direction(const at::Tensor& g, double factor) const {
  const at::Tensor direction = compute_lmo(g);
  return factor == 1 ? direction : direction.mul(factor);
}

NormPtr make_norm(std::string_view name, const MatrixShape& shape, std::string_view orthogonalizer) {
  const Spec spec = parse_spec(name, "norm");
  const auto& arguments = spec.arguments;
  if (spec.name == "spectral" && arguments.size() <= 1) {
    return std::make_shared<SpectralNorm>(
        make_orthogonalizer(arguments.empty() ? orthogonalizer : std::string_view(arguments[0])));
  }
  if (spec.name == "scaled" && arguments.size() == 2) {
    return std::make_shared<ScaledNorm>(width_factor(arguments[0], shape),
                                        make_norm(arguments[1], shape, orthogonalizer));
  }
  if (arguments.empty()) {
    if (spec.name == "max_entry") return std::make_shared<MaxEntryNorm>();
    if (spec.name == "euclidean") return std::make_shared<EuclideanNorm>();
    if (spec.name == "columns") return std::make_shared<RowsColumnsNorm>(RowsColumnsNorm::Axis::kColumns);
    if (spec.name == "rows") return std::make_shared<RowsColumnsNorm>(RowsColumnsNorm::Axis::kRows);
  }
  throw InputError(join("norm: unknown name '", name, "'; allowed are ", kNames));
}

}  // namespace gluon
