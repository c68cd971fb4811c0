// gluon/smoothness: the recorder, its samples, and their files; gluon/fit: samples -> L0, L1 -> radii.

#include <algorithm>
#include <filesystem>
#include <optional>

#include "bindings.h"
#include "gluon/distributed/collective.h"
#include "gluon/fit/fit.h"
#include "gluon/fit/radii.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::python {
namespace {

using Row = std::pair<const LayerTrajectory*, const Sample*>;

std::vector<Row> samples_of(const Trajectory& trajectory) {
  std::vector<Row> rows;
  for (const LayerTrajectory& layer : trajectory.layers) {
    for (const Sample& sample : layer.samples) rows.emplace_back(&layer, &sample);
  }
  return rows;
}

std::vector<py::dict> rows_of(const Trajectory& trajectory) {
  using namespace py::literals;
  std::vector<py::dict> rows;
  for (const auto& [layer, sample] : samples_of(trajectory)) {
    rows.push_back(
        py::dict("step"_a = sample->step, "layer"_a = layer->layer, "group"_a = layer->group, "norm"_a = layer->norm,
                 "dual_method"_a = layer->dual_method, "estimator"_a = estimator_name(trajectory.estimator),
                 "gradient_change"_a = sample->gradient_change, "displacement"_a = sample->displacement,
                 "smoothness"_a = sample->smoothness, "gradient"_a = sample->gradient, "momentum"_a = sample->momentum,
                 "alignment"_a = sample->alignment, "radius"_a = sample->radius));
  }
  return rows;
}

void extend(Trajectory& trajectory, const Trajectory& later) {
  GLUON_CHECK(trajectory.layers.size() == later.layers.size(), "Trajectory: expected ", trajectory.layers.size(),
              " layers, got ", later.layers.size());
  for (std::size_t i = 0; i < later.layers.size(); ++i) {
    auto& samples = trajectory.layers[i].samples;
    samples.insert(samples.end(), later.layers[i].samples.begin(), later.layers[i].samples.end());
  }
}

// Writes the trajectory to a new file, sorted by step.
void write_csv(const Trajectory& trajectory, const std::string& path) {
  std::filesystem::remove(path);
  std::vector<Row> rows = samples_of(trajectory);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.second->step < b.second->step; });
  TrajectoryCsvWriter writer(path, trajectory);
  for (const auto& [layer, sample] : rows) writer.append(*layer, *sample);
  writer.flush();
}

std::string text(const Fit& fit) {
  return join("Fit(l0=", fit.l0, ", l1=", fit.l1, ", mse_rel=", fit.mse_rel, ", violations=", fit.violations,
              ", samples=", fit.samples, fit.left_out == 0 ? "" : join(", left_out=", fit.left_out),
              fit.doubt.empty() ? "" : join(", doubt='", fit.doubt, "'"), ")");
}

}  // namespace

void bind_smoothness(py::module_& module) {
  py::class_<Trajectory>(module, "Trajectory", "Samples of trajectory smoothness, layer by layer.")
      .def_property_readonly("estimator",
                             [](const Trajectory& trajectory) { return estimator_name(trajectory.estimator); })
      .def_property_readonly("layers",
                             [](const Trajectory& trajectory) {
                               std::vector<std::string> names;
                               for (const auto& layer : trajectory.layers) names.push_back(layer.layer);
                               return names;
                             })
      .def("rows", &rows_of, "One dict per sample, with the columns of smoothness.csv.")
      .def("extend", &extend, py::arg("later"))
      .def("to_csv", &write_csv, py::arg("path"))
      .def(
          "gathered",
          [](const Trajectory& trajectory, Collective& collective) { return gather_samples(collective, trajectory); },
          py::arg("collective"), py::call_guard<py::gil_scoped_release>(), "The samples of all ranks, on all of them.")
      .def("__len__", [](const Trajectory& trajectory) { return samples_of(trajectory).size(); });

  py::class_<Recorder, StepObserver, std::shared_ptr<Recorder>>(module, "Recorder")
      .def(py::init([](const std::vector<Layer>& layers, const Geometry& geometry, int64_t every, int64_t start,
                       const std::string& mode, const std::string& dual, const std::vector<bool>& owned) {
             return std::make_shared<Recorder>(
                 layers, geometry,
                 RecorderOptions{.every = every,
                                 .start = start,
                                 .estimator = parse_estimator(mode),
                                 .dual = dual,
                                 .measures = [owned](std::size_t layer) { return owned.at(layer); }});
           }),
           py::arg("layers"), py::arg("geometry"), py::kw_only(), py::arg("every"), py::arg("start"), py::arg("mode"),
           py::arg("dual"), py::arg("owned"))
      .def("needs_reference", &Recorder::needs_reference, py::arg("step"))
      .def("take_reference", &Recorder::take_reference)
      .def("measured", &Recorder::measured)
      .def("take_samples", &Recorder::take_samples);

  module.def("measuring_geometry", &measuring_geometry, py::arg("geometry"));
  module.def(
      "read_trajectory", [](const std::string& path) { return read_trajectory(path); }, py::arg("path"));
}

void bind_fit(py::module_& module) {
  py::class_<Fit>(module, "Fit")
      .def_readonly("l0", &Fit::l0)
      .def_readonly("l1", &Fit::l1)
      .def_readonly("mse_rel", &Fit::mse_rel)
      .def_readonly("violations", &Fit::violations)
      .def_readonly("samples", &Fit::samples)
      .def_readonly("left_out", &Fit::left_out)
      .def_readonly("doubt", &Fit::doubt)
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
      .def_readonly("used", &GroupRadius::used)
      .def_readonly("doubt", &GroupRadius::doubt);
  py::class_<TrajectoryFit>(module, "TrajectoryFit")
      .def_property_readonly("estimator", [](const TrajectoryFit& fit) { return estimator_name(fit.estimator); })
      .def_readonly("layers", &TrajectoryFit::layers)
      .def_readonly("unfitted", &TrajectoryFit::unfitted)
      .def("radii", &predict_radii, "Theorem 1's radius of each group of layers, medians over its layers.");

  const auto def = [&](const char* name, auto function, const auto&... samples) {
    const FitOptions defaults;
    module.def(name, function, samples..., py::arg("hinge") = defaults.lambda, py::arg("l0_zero") = defaults.l0_zero,
               py::arg("skip_first") = defaults.skip_first);
  };
  using Numbers = std::vector<double>;
  def(
      "fit_smoothness",
      [](const Numbers& smoothness, const Numbers& gradient, double hinge, bool l0_zero,
         std::optional<int64_t> skip_first) {
        return fit_smoothness(smoothness, gradient, {hinge, l0_zero, skip_first});
      },
      py::arg("smoothness"), py::arg("gradient"));
  def(
      "fit_trajectory",
      [](const Trajectory& trajectory, double hinge, bool l0_zero, std::optional<int64_t> skip_first) {
        return fit_trajectory(trajectory, {hinge, l0_zero, skip_first});
      },
      py::arg("trajectory"));
}

}  // namespace gluon::python
