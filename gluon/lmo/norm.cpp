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

// Every norm without arguments: the one place where a new one gets its name.
struct NamedNorm {
  std::string_view name;
  NormPtr (*make)();
};
constexpr NamedNorm kNorms[] = {
    {"max_entry", [] { return NormPtr(std::make_shared<MaxEntryNorm>()); }},
    {"euclidean", [] { return NormPtr(std::make_shared<EuclideanNorm>()); }},
    {"columns", [] { return NormPtr(std::make_shared<RowsColumnsNorm>(RowsColumnsNorm::Axis::kColumns)); }},
    {"rows", [] { return NormPtr(std::make_shared<RowsColumnsNorm>(RowsColumnsNorm::Axis::kRows)); }},
};

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
  for (const NamedNorm& norm : kNorms) {
    if (spec.name == norm.name && arguments.empty()) return norm.make();
  }
  std::string allowed = "spectral(ORTHOGONALIZER), scaled(FACTOR,NORM)";
  for (const std::string& known : norm_names()) allowed += ", " + known;
  throw InputError(join("norm: unknown name '", name, "'; allowed are ", allowed));
}

std::vector<std::string> norm_names() {
  std::vector<std::string> names{"spectral"};
  for (const NamedNorm& norm : kNorms) names.emplace_back(norm.name);
  return names;
}

}  // namespace gluon
