// gluon/update: the optimizer over a list of layers, its state, the presets.

#include "gluon/update/optimizer.h"

#include "bindings.h"
#include "gluon/geometry/presets.h"
#include "gluon/update/initialize.h"
#include "gluon/update/qk_clip.h"

namespace gluon::python {
namespace {

NonFinite parse_non_finite(const std::string& name) {
  GLUON_CHECK(name == "error" || name == "skip", "non_finite: unknown name '", name, "'; allowed are error, skip");
  return name == "skip" ? NonFinite::kSkip : NonFinite::kError;
}

// By the names of torch.optim.Muon, and "none".
presets::MuonScale parse_muon_scale(const std::string& name) {
  if (name == "original") return presets::MuonScale::kAspect;
  if (name == "match_rms_adamw") return presets::MuonScale::kMatchAdam;
  GLUON_CHECK(name == "none", "Muon: unknown adjust_lr_fn '", name, "'; allowed are original, match_rms_adamw, none");
  return presets::MuonScale::kNone;
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<Layer> layers, const Geometry& geometry,
                                          const std::optional<MomentumSpec>& momentum,
                                          const std::string& orthogonalizer, const std::string& schedule,
                                          const std::string& non_finite, std::pair<double, double> adamw_betas,
                                          double adamw_eps, double adamw_clip, CollectivePtr collective,
                                          std::function<void(const std::string&)> warn) {
  OptimizerOptions options{
      .schedule = make_schedule(schedule),
      .orthogonalizer = orthogonalizer,
      .non_finite = parse_non_finite(non_finite),
      .adamw = {.beta1 = adamw_betas.first, .beta2 = adamw_betas.second, .eps = adamw_eps, .clip = adamw_clip},
      .collective = std::move(collective),
      .warn = std::move(warn)};
  if (momentum) options.momentum = momentum_from(*momentum);
  return std::make_unique<Optimizer>(std::move(layers), geometry, std::move(options));
}

// In the order of the layers.
std::vector<std::pair<std::string, double>> radii_of(const Optimizer& optimizer) {
  std::vector<std::pair<std::string, double>> radii;
  for (const LayerRadius& layer : optimizer.effective_radii()) radii.emplace_back(layer.name, layer.radius);
  return radii;
}

at::Tensor clip_logits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& max_logits, double tau,
                       double alpha) {
  return qk_clip(query, key, max_logits, {.tau = tau, .alpha = alpha});
}

}  // namespace

void bind_update(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;

  py::class_<OptimizerState>(module, "OptimizerState")
      .def(py::init([](int64_t version, int64_t step, std::map<std::string, at::Tensor> tensors) {
             return OptimizerState{version, step, std::move(tensors)};
           }),
           py::arg("version"), py::arg("step"), py::arg("tensors"))
      .def_readonly("version", &OptimizerState::version)
      .def_readonly("step", &OptimizerState::step)
      .def_readonly("tensors", &OptimizerState::tensors)
      .def(
          "find",
          [](const OptimizerState& state, const std::string& name, const std::vector<int64_t>& sizes) {
            return state.find(name, sizes);
          },
          py::arg("name"), py::arg("sizes"));
  module.attr("state_version") = OptimizerState::kVersion;

  py::class_<StepObserver, std::shared_ptr<StepObserver>>(module, "StepObserver");

  py::class_<Optimizer>(module, "Optimizer")
      .def(py::init(&make_optimizer), py::arg("layers"), py::arg("geometry"), py::kw_only(), py::arg("momentum"),
           py::arg("orthogonalizer"), py::arg("schedule"), py::arg("non_finite"), py::arg("adamw_betas"),
           py::arg("adamw_eps"), py::arg("adamw_clip"), py::arg("collective"), py::arg("warn"))
      .def("step", &Optimizer::step, Release())
      .def("wait", &Optimizer::wait, Release())
      .def("reduce_gradients", &Optimizer::reduce_gradients, Release())
      .def("zero_grad", &Optimizer::zero_grad)
      .def("owns", &Optimizer::owns, py::arg("layer"))
      .def("effective_radii", &radii_of, Release())
      .def("set_group_radius_multiplier", &Optimizer::set_group_radius_multiplier, py::arg("group"),
           py::arg("multiplier"))
      .def("set_group_beta", &Optimizer::set_group_beta, py::arg("group"), py::arg("beta"))
      .def_property_readonly("beta", [](const Optimizer& optimizer) { return optimizer.momentum().constant_beta(); })
      .def_property_readonly("steps_taken", &Optimizer::steps_taken)
      .def_property_readonly("steps_skipped", &Optimizer::steps_skipped)
      .def_property_readonly("layers", &Optimizer::layers)
      .def("state_bytes", &Optimizer::state_bytes)
      .def("add_observer", &Optimizer::add_observer, py::arg("observer"))
      .def("state", &Optimizer::state, Release())
      .def("layer_state", &Optimizer::layer_state, py::arg("layer"), Release())
      .def("load_state", &Optimizer::load_state, py::arg("state"), Release());

  module.def("preset", &presets::make, py::arg("name"), py::arg("radius") = std::map<std::string, double>(),
             "The geometry of a preset, with the radii in `radius` instead of its own.\n\n"
             ">>> import gluon\n"
             ">>> gluon.preset('sign_descent', {'all': 0.01})\n"
             "Geometry([{'norm': 'max_entry', 'radius': 0.01}], momentum='ema(0.9)')\n");
  module.def(
      "muon_geometry",
      [](double hidden, const std::string& adjust_lr_fn, double weight_decay, double adamw) {
        return presets::muon({hidden, parse_muon_scale(adjust_lr_fn), weight_decay, adamw});
      },
      py::arg("hidden"), py::arg("adjust_lr_fn"), py::arg("weight_decay"), py::arg("adamw"));
  module.def(
      "initialize",
      [](const std::vector<Layer>& layers, const Geometry& geometry, double ball, uint64_t seed) {
        initialize(layers, geometry, {.ball = ball, .seed = seed});
      },
      py::arg("layers"), py::arg("geometry"), py::arg("ball") = InitializeOptions{}.ball, py::arg("seed") = 0,
      Release());
  module.def(
      "start_on_spheres",
      [](const std::vector<Layer>& layers, const Geometry& geometry, uint64_t seed) {
        start_on_spheres(layers, geometry, seed);
      },
      py::arg("layers"), py::arg("geometry"), py::arg("seed") = 0, Release());
  module.def("qk_clip", &clip_logits, py::arg("query_weight"), py::arg("key_weight"), py::arg("max_logits"),
             py::arg("tau") = QkClipOptions{}.tau, py::arg("alpha") = QkClipOptions{}.alpha, Release());
}

}  // namespace gluon::python
