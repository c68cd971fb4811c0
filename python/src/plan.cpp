// gluon/plan: what route() decides about layers, for the layers that Python divides among ranks.

#include "gluon/plan/step_plan.h"

#include "bindings.h"

namespace gluon::python {
namespace {

// For each layer its matrices in order: (name, name of the resolved norm); "adamw" for a layer left to AdamW.
std::vector<std::vector<std::pair<std::string, std::string>>> matrices_of(const StepPlan& plan) {
  std::vector<std::size_t> layers(plan.names.size());
  std::vector<std::string> norms(plan.names.size(), "adamw");
  for (const StepPlan::Batch& batch : plan.batches) {
    for (std::size_t i = 0; i < batch.layers.size(); ++i) {
      layers[batch.places[i]] = batch.layers[i];
      norms[batch.places[i]] = batch.norm->name();
    }
  }
  for (const StepPlan::AdamWLayer& layer : plan.adamw) layers[layer.place] = layer.layer;
  std::vector<std::vector<std::pair<std::string, std::string>>> matrices(plan.rules.size());
  for (std::size_t place = 0; place < layers.size(); ++place) {
    matrices[layers[place]].emplace_back(plan.names[place], norms[place]);
  }
  return matrices;
}

}  // namespace

void bind_plan(py::module_& module) {
  py::class_<StepPlan>(module, "StepPlan")
      .def_readonly("rules", &StepPlan::rules)
      .def_readonly("owners", &StepPlan::owners)
      .def_property_readonly("matrices", &matrices_of);
  module.def(
      "route",
      [](const std::vector<Layer>& layers, const Geometry& geometry, const std::string& orthogonalizer, int ranks) {
        return route(layers, geometry, {.orthogonalizer = orthogonalizer, .ranks = ranks});
      },
      py::arg("layers"), py::arg("geometry"), py::arg("orthogonalizer"), py::arg("ranks") = 1);
  module.def(
      "momentum_of",
      [](const Geometry& geometry, const std::optional<MomentumSpec>& given) {
        const Momentum own = geometry.momentum();
        const Momentum momentum = (given ? momentum_from(*given) : own).over(own);
        return std::pair(momentum.constant_beta(), momentum.keeps_buffer());
      },
      py::arg("geometry"), py::arg("momentum"));
}

}  // namespace gluon::python
