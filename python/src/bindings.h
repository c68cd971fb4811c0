// The Python module gluon._core: thin bindings, one bind_x() per folder of the library. Parameter groups,
// names and the torch.optim.Optimizer are in python/gluon/.

#pragma once

// LibTorch's header, whose casters convert between at::Tensor and torch.Tensor.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <variant>

#include "gluon/momentum/momentum.h"

namespace gluon::python {

namespace py = pybind11;

void bind_geometry(py::module_& module);
void bind_lmo(py::module_& module);
void bind_norms(py::module_& module);
void bind_distributed(py::module_& module);
void bind_plan(py::module_& module);
void bind_update(py::module_& module);
void bind_smoothness(py::module_& module);
void bind_fit(py::module_& module);
void bind_theory(py::module_& module);

/// A momentum as Python passes it: 0.9, or a name such as "nesterov(0.95)".
using MomentumSpec = std::variant<double, std::string>;

inline Momentum momentum_from(const MomentumSpec& spec) {
  if (const auto* beta = std::get_if<double>(&spec)) return Momentum(*beta);
  return make_momentum(std::get<std::string>(spec));
}

}  // namespace gluon::python
