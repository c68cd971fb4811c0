// gluon/lmo: norms, their duals and LMOs on tensors shaped as parameters, and the polar factor.

#include "gluon/lmo/norm.h"

#include <ATen/ATen.h>

#include "bindings.h"
#include "gluon/core/layer.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon::python {
namespace {

using OptionalRole = std::optional<std::string>;

Role role_of(const at::Tensor& tensor, const OptionalRole& role) {
  return role ? parse_role(*role) : infer_role("", tensor.sizes());
}

NormPtr norm_for(const at::Tensor& tensor, const std::string& name, Role role, const std::string& orthogonalizer) {
  MatrixShape shape = matrix_shape(tensor.sizes(), role);
  shape.batch = 1;
  return make_norm(name, shape, orthogonalizer);
}

// One value per matrix; a parameter that is a single matrix has a single value.
at::Tensor per_matrix(const at::Tensor& values, const at::Tensor& parameter, Role role) {
  const bool stack = parameter.dim() > 2 && role != Role::kConv && role != Role::kVector && role != Role::kScalar;
  return stack ? values.reshape(parameter.sizes().slice(0, parameter.dim() - 2)) : values.reshape({});
}

using Values = at::Tensor (Norm::*)(const at::Tensor&) const;

template <Values values>
at::Tensor measure(const at::Tensor& x, const std::string& name, const OptionalRole& role,
                   const std::string& orthogonalizer) {
  const Role r = role_of(x, role);
  const NormPtr norm = norm_for(x, name, r, orthogonalizer);
  return per_matrix(((*norm).*values)(as_matrices(x, r)), x, r);
}

at::Tensor lmo(const at::Tensor& g, const std::string& name, const OptionalRole& role,
               const std::string& orthogonalizer) {
  const Role r = role_of(g, role);
  return norm_for(g, name, r, orthogonalizer)->lmo(as_matrices(g, r)).reshape(g.sizes());
}

at::Tensor orthogonalize(const at::Tensor& x, const std::string& method, const OptionalRole& role) {
  return make_orthogonalizer(method)->polar(as_matrices(x, role_of(x, role))).reshape(x.sizes());
}

}  // namespace

void bind_lmo(py::module_& module) {
  const std::string orthogonalizer(kDefaultOrthogonalizer);
  module.attr("default_orthogonalizer") = orthogonalizer;
  const auto def = [&](const char* name, auto function) {
    module.def(name, function, py::arg("x"), py::arg("name"), py::arg("role") = py::none(),
               py::arg("orthogonalizer") = orthogonalizer, py::call_guard<py::gil_scoped_release>());
  };
  def("norm", &measure<&Norm::norm>);
  def("dual_norm", &measure<&Norm::dual_norm>);
  def("lmo", &lmo);
  module.def("orthogonalize", &orthogonalize, py::arg("x"), py::arg("method") = orthogonalizer,
             py::arg("role") = py::none(), py::call_guard<py::gil_scoped_release>());
}

}  // namespace gluon::python
