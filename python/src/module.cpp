#include <ATen/Parallel.h>

#include "bindings.h"
#include "gluon/core/check.h"
#include "gluon/core/openmp_spinning.h"
#include "gluon/update/optimizer.h"
#include "gluon/version.h"

namespace gluon::python {

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ library behind the package gluon.";
  // The last registered translator runs first, so NonFiniteGradient is not translated to a plain ValueError.
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const InputError& bad) {
      PyErr_SetString(PyExc_ValueError, bad.what());
    }
  });
  py::register_exception<NonFiniteGradient>(module, "NonFiniteGradient", PyExc_ValueError);
  module.attr("__version__") = kVersion;

  // Never destroyed: threads cannot be joined while the interpreter exits.
  [[maybe_unused]] static const auto* const spinning = new SpinningLimit(at::get_num_threads());

  bind_geometry(module);
  bind_lmo(module);
  bind_norms(module);
  bind_distributed(module);  // before what takes a collective
  bind_plan(module);
  bind_update(module);
  bind_smoothness(module);
  bind_fit(module);
  bind_theory(module);
}

}  // namespace gluon::python
