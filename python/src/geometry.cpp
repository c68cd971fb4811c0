// gluon/geometry: layers, roles, and rules as dicts with the keys of gluon::Rule.

#include "gluon/geometry/geometry.h"

#include "bindings.h"
#include "gluon/core/spec.h"
#include "python_norm.h"

namespace gluon::python {
namespace {

// Reads the fields of a rule from a dict; keys that were not read are unknown.
class RuleReader {
 public:
  explicit RuleReader(const py::dict& rule) : left_(py::reinterpret_steal<py::dict>(PyDict_Copy(rule.ptr()))) {}

  template <typename T> void read(const char* key, T& field) {
    allowed_ += (allowed_.empty() ? "" : ", ") + std::string(key);
    if (!left_.contains(key)) return;
    const py::object value = left_.attr("pop")(key);
    if (value.is_none()) return;
    try {
      field = value.cast<T>();
    } catch (const py::cast_error&) {
      throw InputError(join("rule: '", key, "' cannot be ", std::string(py::repr(value))));
    }
  }

  void finish() const {
    if (left_.empty()) return;
    const auto [key, value] = *left_.begin();
    throw InputError(join("rule: unknown key ", std::string(py::repr(key)), "; allowed are ", allowed_));
  }

 private:
  py::dict left_;
  std::string allowed_;
};

void read_role(RuleReader& reader, const char* key, std::optional<Role>& role) {
  std::string name;
  reader.read(key, name);
  if (!name.empty()) role = parse_role(name);
}

// "weight_decay" is a number, as in torch; "decay" has all forms.
Decay decay_from(std::optional<double> weight_decay, const std::variant<std::monostate, double, std::string>& decay) {
  if (std::holds_alternative<std::monostate>(decay)) return weight_decay.value_or(0);
  const Decay given =
      std::holds_alternative<double>(decay) ? Decay(std::get<double>(decay)) : Decay(std::get<std::string>(decay));
  GLUON_CHECK(weight_decay.value_or(0) == 0, "rule: 'weight_decay' and 'decay' set the same, got ", *weight_decay,
              " and ", given.name(), "; give one");
  return given;
}

Rule rule_from(const py::dict& dict) {
  Rule rule;
  RuleReader reader(dict);
  py::object norm = py::str(rule.norm.name());
  std::variant<double, std::string> radius = *rule.radius->constant();
  std::variant<std::monostate, double, std::string> sphere;
  std::optional<double> weight_decay;
  std::variant<std::monostate, double, std::string> decay;
  std::string normalize = rule.normalize.name();
  reader.read("pattern", rule.pattern);
  read_role(reader, "role", rule.role);
  reader.read("rank", rule.rank);
  read_role(reader, "beside", rule.beside);
  read_role(reader, "without", rule.without);
  reader.read("group", rule.group);
  reader.read("norm", norm);
  reader.read("normalize", normalize);
  reader.read("radius", radius);
  reader.read("split", rule.split);
  reader.read("weight_decay", weight_decay);
  reader.read("decay", decay);
  reader.read("ball", rule.ball);
  reader.read("sphere", sphere);
  reader.finish();
  if (py::isinstance<py::str>(norm)) {
    rule.norm = norm.cast<std::string>();
  } else {
    rule.norm = std::make_shared<PythonNorm>(norm);
  }
  rule.radius = std::holds_alternative<double>(radius) ? Radius(std::get<double>(radius))
                                                       : make_radius(std::get<std::string>(radius));
  rule.normalize = normalize;
  rule.decay = decay_from(weight_decay, decay);
  if (const double* given = std::get_if<double>(&sphere)) rule.sphere = *given;
  if (const std::string* given = std::get_if<std::string>(&sphere)) rule.sphere = make_sphere(*given);
  return rule;
}

// A number where the text says no more.
py::object number_or_text(std::optional<double> number, const std::string& text) {
  return number && number_text(*number) == text ? py::object(py::float_(*number)) : py::object(py::str(text));
}

// The norm as the rule was given it: a name, or an object of Python's.
py::object norm_of(const Rule& rule) {
  if (rule.norm.is_adamw()) return py::str(rule.norm.name());
  const NormPtr norm = rule.norm.resolve({}, kDefaultOrthogonalizer);
  const auto* ours = dynamic_cast<const PythonNorm*>(norm.get());
  return ours != nullptr ? ours->object() : py::str(rule.norm.name());
}

py::dict dict_from(const Rule& rule) {
  py::dict dict;
  if (rule.pattern != "*") dict["pattern"] = rule.pattern;
  if (rule.role) dict["role"] = role_name(*rule.role);
  if (rule.rank) dict["rank"] = *rule.rank;
  if (rule.beside) dict["beside"] = role_name(*rule.beside);
  if (rule.without) dict["without"] = role_name(*rule.without);
  if (rule.group) dict["group"] = *rule.group;
  dict["norm"] = norm_of(rule);
  if (!rule.normalize.is_none()) dict["normalize"] = rule.normalize.name();
  dict["radius"] = number_or_text(rule.radius->constant(), rule.radius->name());
  if (!rule.split.empty()) dict["split"] = rule.split;
  if (const auto weight = rule.decay.constant(); !rule.decay.is_none()) {
    if (weight) dict["weight_decay"] = *weight;
    if (!weight) dict["decay"] = rule.decay.name();
  }
  if (rule.ball) dict["ball"] = *rule.ball;
  if (rule.sphere) dict["sphere"] = number_or_text(rule.sphere->number(), rule.sphere->name());
  return dict;
}

Geometry geometry_from(const std::vector<py::dict>& dicts, const MomentumSpec& momentum) {
  std::vector<Rule> rules;
  for (const py::dict& dict : dicts) rules.push_back(rule_from(dict));
  return Geometry(std::move(rules), momentum_from(momentum));
}

std::vector<py::dict> rules_of(const Geometry& geometry) {
  std::vector<py::dict> rules;
  for (const Rule& rule : geometry.rules()) rules.push_back(dict_from(rule));
  return rules;
}

// Ranks compare this text, so a norm of Python's appears by its name and not by its address.
std::string text_of(const Geometry& geometry) {
  std::vector<py::dict> rules = rules_of(geometry);
  for (std::size_t i = 0; i < rules.size(); ++i) rules[i]["norm"] = geometry.rules()[i].norm.name();
  return join("Geometry(", std::string(py::repr(py::cast(rules))), ", momentum='", geometry.momentum().name(), "')");
}

}  // namespace

void bind_geometry(py::module_& module) {
  module.def("infer_role", [](const std::string& name, const std::vector<int64_t>& sizes) {
    return role_name(infer_role(name, sizes));
  });
  module.def("glob_match", &glob_match, py::arg("pattern"), py::arg("name"));

  py::class_<Layer>(module, "Layer")
      .def(py::init([](std::string name, at::Tensor parameter, const std::string& role, int64_t group) {
             return Layer{std::move(name), std::move(parameter), parse_role(role), group};
           }),
           py::arg("name"), py::arg("parameter"), py::arg("role"), py::arg("group") = 0)
      .def_readonly("name", &Layer::name)
      .def_readonly("parameter", &Layer::parameter)
      .def_property_readonly("role", [](const Layer& layer) { return role_name(layer.role); })
      .def_readonly("group", &Layer::group);

  module.def(
      "find_head", [](const std::vector<Layer>& layers) { return find_head(layers); }, py::arg("layers"));

  py::class_<Geometry>(module, "Geometry",
                       "Which norm measures which layer, and how far each moves: an ordered list of rules, the first "
                       "that matches decides.\n\n"
                       ">>> import gluon\n"
                       ">>> gluon.Geometry([{'role': 'hidden', 'norm': 'spectral', 'radius': 0.02},\n"
                       "...                 {'norm': 'adamw', 'radius': 3e-4}])\n"
                       "Geometry([{'role': 'hidden', 'norm': 'spectral', 'radius': 0.02}, "
                       "{'norm': 'adamw', 'radius': 0.0003}], momentum='ema(0.9)')\n")
      .def(py::init(&geometry_from), py::arg("rules"), py::arg("momentum") = "ema(0.9)")
      .def_property_readonly("rules", &rules_of, "The rules as dicts.")
      .def_property_readonly("momentum", [](const Geometry& geometry) { return geometry.momentum().name(); })
      .def(
          "with_first",
          [](const Geometry& geometry, const py::dict& rule) { return geometry.with_first(rule_from(rule)); },
          py::arg("rule"), "This geometry with `rule` before all others.")
      .def(
          "routing_report",
          [](const Geometry& geometry, const std::vector<Layer>& layers) { return geometry.routing_report(layers); },
          py::arg("layers"))
      .def("__repr__", &text_of)
      .def(py::pickle(
          [](const Geometry& geometry) { return py::make_tuple(rules_of(geometry), geometry.momentum().name()); },
          [](const py::tuple& saved) {
            return geometry_from(saved[0].cast<std::vector<py::dict>>(), saved[1].cast<std::string>());
          }));
}

}  // namespace gluon::python
