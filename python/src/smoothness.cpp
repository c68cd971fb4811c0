// gluon/smoothness: the recorder, its samples, and their files.

#include <algorithm>
#include <filesystem>

#include "bindings.h"
#include "gluon/distributed/collective.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::python {
namespace {

std::vector<py::dict> rows_of(const Trajectory& trajectory) {
  std::vector<py::dict> rows;
  for (const LayerTrajectory& layer : trajectory.layers) {
    for (const Sample& sample : layer.samples) {
      py::dict row;
      row["step"] = sample.step;
      row["layer"] = layer.layer;
      row["group"] = layer.group;
      row["norm"] = layer.norm;
      row["dual_method"] = layer.dual_method;
      row["estimator"] = estimator_name(trajectory.estimator);
      row["gradient_change"] = sample.gradient_change;
      row["displacement"] = sample.displacement;
      row["smoothness"] = sample.smoothness;
      row["gradient"] = sample.gradient;
      row["momentum"] = sample.momentum;
      row["alignment"] = sample.alignment;
      row["radius"] = sample.radius;
      rows.push_back(std::move(row));
    }
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
  std::vector<std::pair<const LayerTrajectory*, const Sample*>> rows;
  for (const LayerTrajectory& layer : trajectory.layers) {
    for (const Sample& sample : layer.samples) rows.emplace_back(&layer, &sample);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second->step < b.second->step; });
  TrajectoryCsvWriter writer(path, trajectory);
  for (const auto& [layer, sample] : rows) writer.append(*layer, *sample);
  writer.flush();
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
      .def("__len__", [](const Trajectory& trajectory) {
        std::size_t samples = 0;
        for (const auto& layer : trajectory.layers) samples += layer.samples.size();
        return samples;
      });

  py::class_<Recorder, StepObserver, std::shared_ptr<Recorder>>(module, "Recorder")
      .def(py::init([](const std::vector<Layer>& layers, const Geometry& geometry, int64_t every,
                       const std::string& mode, const std::string& dual, const std::vector<bool>& owned) {
             return std::make_shared<Recorder>(
                 layers, geometry,
                 RecorderOptions{.every = every,
                                 .estimator = parse_estimator(mode),
                                 .dual = dual,
                                 .measures = [owned](std::size_t layer) { return owned.at(layer); }});
           }),
           py::arg("layers"), py::arg("geometry"), py::kw_only(), py::arg("every"), py::arg("mode"), py::arg("dual"),
           py::arg("owned"))
      .def("needs_reference", &Recorder::needs_reference, py::arg("step"))
      .def("take_reference", &Recorder::take_reference)
      .def("measured", &Recorder::measured)
      .def("take_samples", &Recorder::take_samples);

  module.def("measuring_geometry", &measuring_geometry, py::arg("geometry"));
  module.def(
      "read_trajectory", [](const std::string& path) { return read_trajectory(path); }, py::arg("path"));
}

}  // namespace gluon::python
