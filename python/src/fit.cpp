// gluon/fit: samples -> L0, L1 -> radii.

#include "gluon/fit/fit.h"

#include "bindings.h"
#include "gluon/core/check.h"
#include "gluon/fit/radii.h"

namespace gluon::python {
namespace {

std::string text(const Fit& fit) {
  return join("Fit(l0=", fit.l0, ", l1=", fit.l1, ", mse_rel=", fit.mse_rel, ", violations=", fit.violations,
              ", samples=", fit.samples, ")");
}

}  // namespace

void bind_fit(py::module_& module) {
  py::class_<Fit>(module, "Fit")
      .def_readonly("l0", &Fit::l0)
      .def_readonly("l1", &Fit::l1)
      .def_readonly("mse_rel", &Fit::mse_rel)
      .def_readonly("violations", &Fit::violations)
      .def_readonly("samples", &Fit::samples)
      .def("__repr__", &text);
  py::class_<LayerFit>(module, "LayerFit")
      .def_readonly("layer", &LayerFit::layer)
      .def_readonly("group", &LayerFit::group)
      .def_readonly("fit", &LayerFit::fit)
      .def_readonly("unmoved", &LayerFit::unmoved)
      .def_readonly("gradient", &LayerFit::gradient)
      .def_readonly("radius", &LayerFit::radius)
      .def("__repr__", [](const LayerFit& fit) { return join("LayerFit('", fit.layer, "', ", text(fit.fit), ")"); });
  py::class_<UnfittedLayer>(module, "UnfittedLayer")
      .def_readonly("layer", &UnfittedLayer::layer)
      .def_readonly("group", &UnfittedLayer::group)
      .def_readonly("reason", &UnfittedLayer::reason);
  py::class_<GroupRadius>(module, "GroupRadius")
      .def_readonly("group", &GroupRadius::group)
      .def_readonly("layers", &GroupRadius::layers)
      .def_readonly("l0", &GroupRadius::l0)
      .def_readonly("l1", &GroupRadius::l1)
      .def_readonly("gradient", &GroupRadius::gradient)
      .def_readonly("predicted", &GroupRadius::predicted)
      .def_readonly("used", &GroupRadius::used);
  py::class_<TrajectoryFit>(module, "TrajectoryFit")
      .def_property_readonly("estimator", [](const TrajectoryFit& fit) { return estimator_name(fit.estimator); })
      .def_readonly("layers", &TrajectoryFit::layers)
      .def_readonly("unfitted", &TrajectoryFit::unfitted)
      .def("radii", &predict_radii, "Theorem 1's radius of each group of layers, medians over its layers.");

  const FitOptions defaults;
  module.def(
      "fit_smoothness",
      [](const std::vector<double>& smoothness, const std::vector<double>& gradient, double hinge, bool l0_zero,
         int64_t skip_first) {
        return fit_smoothness(smoothness, gradient, {hinge, l0_zero, skip_first});
      },
      py::arg("smoothness"), py::arg("gradient"), py::arg("hinge") = defaults.lambda,
      py::arg("l0_zero") = defaults.l0_zero, py::arg("skip_first") = defaults.skip_first);
  module.def(
      "fit_trajectory",
      [](const Trajectory& trajectory, double hinge, bool l0_zero, int64_t skip_first) {
        return fit_trajectory(trajectory, {hinge, l0_zero, skip_first});
      },
      py::arg("trajectory"), py::arg("hinge") = defaults.lambda, py::arg("l0_zero") = defaults.l0_zero,
      py::arg("skip_first") = defaults.skip_first);
}

}  // namespace gluon::python
