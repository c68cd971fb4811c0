// gluon/theory: the guarantees of the paper's theorems, as gluon._core.theory.

#include <algorithm>

#include "bindings.h"
#include "gluon/core/check.h"
#include "gluon/theory/theorems.h"

namespace gluon::python {
namespace {

using namespace gluon::theory;

/// One number for all layers, or one per layer.
using PerLayer = std::variant<double, std::vector<double>>;

std::vector<double> values_of(const PerLayer& values, std::size_t layers, const char* what) {
  if (const auto* one = std::get_if<double>(&values)) return std::vector<double>(layers, *one);
  const auto& several = std::get<std::vector<double>>(values);
  GLUON_CHECK(several.size() == layers, "theory: expected one ", what, " per layer, ", layers, ", got ",
              several.size());
  return several;
}

Constants constants_from(const PerLayer& l0, const PerLayer& l1, double initial_gap,
                         const std::optional<PerLayer>& t = {}, const PerLayer& noise_factor = 1.0) {
  std::size_t layers = 1;
  for (const PerLayer* values : {&l0, &l1}) {
    if (const auto* several = std::get_if<std::vector<double>>(values)) layers = std::max(layers, several->size());
  }
  const auto l0s = values_of(l0, layers, "L0");
  const auto l1s = values_of(l1, layers, "L1");
  const auto factors = values_of(noise_factor, layers, "noise factor");
  const auto ts = t ? values_of(*t, layers, "t") : std::vector<double>();
  Constants constants{.layers = {}, .initial_gap = initial_gap};
  for (std::size_t i = 0; i < layers; ++i) {
    constants.layers.push_back({.l0 = l0s[i], .l1 = l1s[i], .noise_factor = factors[i]});
    if (t) constants.layers.back().t = ts[i];
  }
  return constants;
}

NoiseKind parse_noise(const std::string& name) {
  if (name == "none") return NoiseKind::kNone;
  if (name == "relative") return NoiseKind::kRelative;
  if (name == "variance") return NoiseKind::kVariance;
  throw InputError(join("noise: unknown name '", name, "'; allowed are none, relative, variance"));
}

void bind_guarantee(py::module_& module) {
  py::class_<Guarantee>(module, "Guarantee", "The guarantee of a theorem for given constants.")
      .def_readonly("theorem", &Guarantee::theorem)
      .def_readonly("promise", &Guarantee::promise)
      .def_readonly("formula", &Guarantee::formula)
      .def_readonly("bound_formula", &Guarantee::bound_formula)
      .def_readonly("weights", &Guarantee::weights)
      .def_readonly("radii", &Guarantee::radii)
      .def_readonly("largest_radii", &Guarantee::largest_radii)
      .def_readonly("momentum", &Guarantee::momentum)
      .def("iterations", &Guarantee::iterations, py::arg("precision"), "K for this precision.")
      .def(
          "bound", [](const Guarantee& guarantee, double iterations) { return guarantee.bound(iterations); },
          py::arg("iterations"), "The smallest precision guaranteed after K iterations.")
      .def("__repr__", [](const Guarantee& guarantee) {
        return join("Guarantee('", guarantee.theorem, "': ", guarantee.promise, ", ", guarantee.formula, ")");
      });
  py::class_<TableRow>(module, "TableRow")
      .def_readonly("source", &TableRow::source)
      .def_readonly("stochastic", &TableRow::stochastic)
      .def_readonly("layer_wise", &TableRow::layer_wise)
      .def_readonly("rate", &TableRow::rate)
      .def_readonly("radius", &TableRow::radius)
      .def_readonly("one_minus_beta", &TableRow::one_minus_beta)
      .def_readonly("obstacle", &TableRow::obstacle)
      .def_readonly("iterations", &TableRow::iterations);
}

// Binds a function of Constants, which Python passes as L0, L1 and the initial gap.
template <typename Result, typename... Rest, typename... Arguments>
void define(py::module_& module, const char* name, Result (*function)(const Constants&, Rest...),
            const Arguments&... arguments) {
  module.def(
      name,
      [function](const PerLayer& l0, const PerLayer& l1, double gap, Rest... rest) {
        return function(constants_from(l0, l1, gap), rest...);
      },
      py::arg("l0"), py::arg("l1"), py::arg("initial_gap"), py::kw_only(), arguments...);
}

}  // namespace

void bind_theory(py::module_& parent) {
  py::module_ module = parent.def_submodule("theory");
  bind_guarantee(module);
  define(
      module, "theorem1",
      +[](const Constants& all, bool weighted) { return weighted ? theorem1_weighted(all) : theorem1(all); },
      py::arg("weighted") = false);
  define(
      module, "theorem2",
      +[](const Constants& all, double zeta, bool weighted) {
        return weighted ? theorem2_weighted(all, zeta) : theorem2(all, zeta);
      },
      py::arg("zeta"), py::arg("weighted") = false);
  module.def(
      "theorem3",
      [](const PerLayer& l0, const PerLayer& l1, double gap, double sigma, const std::optional<PerLayer>& t,
         const PerLayer& noise_factor) { return theorem3(constants_from(l0, l1, gap, t, noise_factor), sigma); },
      py::arg("l0"), py::arg("l1"), py::arg("initial_gap"), py::kw_only(), py::arg("sigma"), py::arg("t") = py::none(),
      py::arg("noise_factor") = 1.0);
  define(module, "theorem_pl", &theorem_pl, py::arg("mu"));
  define(module, "theorem_pl_without_l1", &theorem_pl_without_l1, py::arg("mu"));
  module.def(
      "table1",
      [](const PerLayer& l0, const PerLayer& l1, double gap, double precision, const std::string& noise,
         std::optional<double> sigma, const std::optional<PerLayer>& t, const PerLayer& noise_factor) {
        return table1(constants_from(l0, l1, gap, t, noise_factor), parse_noise(noise), precision, sigma);
      },
      py::arg("l0"), py::arg("l1"), py::arg("initial_gap"), py::kw_only(), py::arg("precision"),
      py::arg("noise") = "none", py::arg("sigma") = py::none(), py::arg("t") = py::none(),
      py::arg("noise_factor") = 1.0);

  module.def(
      "theorem1_radius",
      [](double l0, double l1, double g) { return theorem1_radius(LayerConstants{.l0 = l0, .l1 = l1}, g); },
      py::arg("l0"), py::arg("l1"), py::arg("gradient_dual_norm"));
  module.def(
      "theorem2_radius",
      [](double l0, double l1, double zeta, double g) {
        return theorem2_radius(LayerConstants{.l0 = l0, .l1 = l1}, zeta, g);
      },
      py::arg("l0"), py::arg("l1"), py::arg("zeta"), py::arg("gradient_dual_norm"));
  module.def("theorem3_beta", &theorem3_beta, py::arg("step"));
  module.def("theorem3_radius", &theorem3_radius, py::arg("t"), py::arg("step"));
  module.def("theorem3_largest_t", &theorem3_largest_t, py::arg("l1"));
}

}  // namespace gluon::python
