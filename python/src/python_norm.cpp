#include "python_norm.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <set>
#include <tuple>

#include "gluon/core/check.h"
#include "gluon/plan/step_plan.h"
#include "gluon/testing/norm_identities.h"

namespace gluon::python {
namespace {

constexpr const char* kExpected =
    "norm: expected a name, or an object with a 'name' and the functions norm, dual_norm and lmo; ";

std::string name_of(const py::object& object) {
  const std::string type(py::str(py::type::of(object).attr("__name__")));
  const py::object name = py::getattr(object, "name", py::none());
  GLUON_CHECK(py::isinstance<py::str>(name) && py::len(name) > 0, kExpected, type, " has no 'name'");
  for (const char* function : {"norm", "dual_norm", "lmo"}) {
    const py::object found = py::getattr(object, function, py::none());
    GLUON_CHECK(PyCallable_Check(found.ptr()) == 1, kExpected, type, " has no ", function, "()");
  }
  GLUON_CHECK(std::string(py::str(name)) != "adamw", "norm: 'adamw' is no norm; an object needs another name");
  return std::string(py::str(name));
}

// Raises on the first identity that a rule's norm of Python violates for the shape of one of its layers. A norm may say
// with its attribute `tolerance` how exact it is.
void check_norms(const std::vector<Layer>& layers, const Geometry& geometry) {
  std::set<std::tuple<const Norm*, int64_t, int64_t>> seen;
  for (const StepPlan::Batch& batch : route(layers, geometry).batches) {
    const auto* norm = dynamic_cast<const PythonNorm*>(batch.norm.get());
    const MatrixShape& shape = batch.blocks.front().shape;
    if (norm == nullptr || !seen.emplace(norm, shape.rows, shape.cols).second) continue;
    const py::float_ tolerance(py::getattr(norm->object(), "tolerance", py::float_(1e-3)));
    // With a generator of its own: a check changes no bit of a run.
    const at::Tensor g =
        at::randn({3, shape.rows, shape.cols}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{0}), at::kFloat)
            .to(batch.blocks.front().layer.parameter.device());
    g.select(0, 1).zero_();
    const auto violations = norm_identity_violations(*norm, g, {.tolerance = static_cast<double>(tolerance)});
    GLUON_CHECK(violations.empty(), "norm of layer '", batch.blocks.front().layer.name, "': ", violations.front());
  }
}

}  // namespace

PythonNorm::PythonNorm(py::object object) : object_(std::move(object)), name_(name_of(object_)) {}

PythonNorm::~PythonNorm() {
  const py::gil_scoped_acquire gil;  // the last rule that holds it may be dropped by any thread
  object_ = py::object();
}

at::Tensor PythonNorm::call(const char* function, const at::Tensor& x, at::IntArrayRef sizes) const {
  const py::gil_scoped_acquire gil;
  try {
    const auto tensor = object_.attr(function)(x).cast<at::Tensor>();
    GLUON_CHECK(tensor.sizes() == sizes, "norm '", name_, "': ", function, "() of ", x.sizes(), " must be ", sizes,
                ", got ", tensor.sizes());
    return tensor;
  } catch (const py::cast_error&) {
    throw InputError(join("norm '", name_, "': ", function, "() must return a tensor"));
  } catch (const py::error_already_set& error) {
    // Converted here: elsewhere the lock may not be held.
    throw InputError(join("norm '", name_, "': ", function, "() raised ",
                          std::string(py::str(error.type().attr("__name__"))), ": ",
                          std::string(py::str(error.value()))));
  }
}

at::Tensor PythonNorm::compute_norm(const at::Tensor& x) const { return call("norm", x, {x.size(0)}); }

at::Tensor PythonNorm::compute_dual_norm(const at::Tensor& g) const { return call("dual_norm", g, {g.size(0)}); }

at::Tensor PythonNorm::compute_lmo(const at::Tensor& g) const { return call("lmo", g, g.sizes()); }

void bind_norms(py::module_& module) {
  module.def("check_norms", &check_norms, py::arg("layers"), py::arg("geometry"));
}

}  // namespace gluon::python
