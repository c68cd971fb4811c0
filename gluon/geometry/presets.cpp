#include "gluon/geometry/presets.h"

#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon::presets {
namespace {

constexpr const char* kHiddenNorm = "scaled(sqrt(n/m),spectral)";
constexpr const char* kConvNorm = "scaled(sqrt(kernel*n/m),spectral)";
constexpr const char* kTokenNorm = "scaled(1/sqrt(n),rows)";
constexpr const char* kHeadNorm = "scaled(n,max_entry)";
constexpr const char* kVectorNorm = "scaled(1/sqrt(m),euclidean)";

std::string muon_norm(MuonScale scale) {
  switch (scale) {
    case MuonScale::kNone: return "spectral";
    case MuonScale::kAspect: return "scaled(1/sqrt(max(1,m/n)),spectral)";
    case MuonScale::kMatchAdam: return "scaled(1/(0.2*sqrt(max(m,n))),spectral)";
  }
  return {};
}

// Of muon(SCALE) or normuon(SCALE); that of muon where there is none.
MuonScale muon_scale(std::string_view preset) {
  const Spec spec = parse_spec(preset, "preset");
  const std::string scale = preset == spec.name ? "aspect" : spec.arguments.size() == 1 ? spec.arguments[0] : "";
  if (scale == "none") return MuonScale::kNone;
  if (scale == "aspect") return MuonScale::kAspect;
  if (scale == "match_adam") return MuonScale::kMatchAdam;
  const std::string& name = spec.name;
  throw InputError(join("preset: unknown scale in '", preset, "'; allowed are ", name, "(none), ", name, "(aspect), ",
                        name, "(match_adam)"));
}

// Scion's norms with the radii of UnscionOptions or ScionOptions times gamma; conv_gamma is for convolutions, and for
// head and vectors of a pure CNN (with convolutions, without hidden layers).
std::vector<Rule> scion_rules(const auto& o, double gamma, double conv_gamma) {
  const auto in_cnn = [](Role role, const char* norm, double radius) {
    return Rule{.role = role, .beside = Role::kConv, .without = Role::kHidden, .norm = norm, .radius = radius};
  };
  return {
      {.role = Role::kHidden, .norm = kHiddenNorm, .radius = gamma * o.hidden},
      {.role = Role::kConv, .norm = kConvNorm, .radius = conv_gamma * o.conv},
      {.role = Role::kEmbedding,
       .beside = Role::kHead,
       .norm = kTokenNorm,
       .radius = gamma * o.untied_embedding.value_or(o.hidden)},
      {.role = Role::kEmbedding, .norm = kHeadNorm, .radius = gamma * o.embedding},
      in_cnn(Role::kHead, kHeadNorm, conv_gamma * o.head.value_or(100 * o.conv)),
      {.role = Role::kHead, .norm = kHeadNorm, .radius = gamma * o.head.value_or(o.embedding)},
      in_cnn(Role::kVector, kVectorNorm, conv_gamma * o.vector.value_or(o.conv)),
      {.norm = kVectorNorm, .radius = gamma * o.vector.value_or(o.hidden)},
  };
}

// Theorem 1 needs |lmo(g)| = 1 and <g, lmo(g)> = -|g|*: a spectral norm that names no orthogonalizer takes the SVD.
NormChoice with_exact_lmo(const NormChoice& norm) {
  constexpr std::string_view kSpectral = "spectral";
  std::string name = norm.name();
  const auto place = name.find(kSpectral);
  if (place == std::string::npos || name.substr(place + kSpectral.size()).starts_with("(")) return norm;
  return name.insert(place + kSpectral.size(), "(svd)");
}

using Radii = std::map<std::string, double>;
using Fields = std::vector<std::pair<std::string, std::variant<double*, std::optional<double>*>>>;

// Writes the radii that a preset has under these keys to its options and refuses others.
void read_radii(std::string_view preset, Radii radii, const Fields& fields) {
  std::string allowed;
  for (const auto& [key, field] : fields) {
    allowed += (allowed.empty() ? "" : ", ") + key;
    if (const auto given = radii.extract(key)) std::visit([&](auto* value) { *value = given.mapped(); }, field);
  }
  GLUON_CHECK(radii.empty(), "preset ", preset, ": unknown radius '", radii.begin()->first, "'; allowed are ", allowed);
}

int64_t whole_steps(double steps) {
  GLUON_CHECK(steps >= 1 && steps <= 0x1p53 && std::floor(steps) == steps,
              "preset sphere: steps must be a whole number in 1..2^53, got ", steps);
  return static_cast<int64_t>(steps);
}

// Whether `preset` is `name` or name(...).
bool is_called(std::string_view preset, std::string_view name) {
  return preset.starts_with(name) && (preset.size() == name.size() || preset[name.size()] == '(');
}

Fields scion_fields(auto& o) {
  return {{"hidden", &o.hidden}, {"embedding", &o.embedding},
          {"conv", &o.conv},     {"untied_embedding", &o.untied_embedding},
          {"head", &o.head},     {"vector", &o.vector}};
}

}  // namespace

Geometry muon(const MuonOptions& options) {
  const auto decayed = [&](Role role, const std::string& norm, double radius) {
    return Rule{.role = role, .norm = norm, .radius = radius, .decay = options.weight_decay};
  };
  std::vector<Rule> rules{decayed(Role::kHidden, muon_norm(options.scale), options.hidden),
                          decayed(Role::kConv, muon_norm(options.scale), options.hidden),
                          decayed(Role::kEmbedding, "adamw", options.adamw),
                          decayed(Role::kHead, "adamw", options.adamw),
                          {.norm = "adamw", .radius = options.adamw}};
  rules[0].normalize = rules[1].normalize = options.normalize;
  return Geometry(std::move(rules), Momentum::nesterov(0.95));
}

Geometry normuon(MuonOptions options) {
  if (options.normalize.is_none()) options.normalize = Normalize::normuon(0.95);
  return muon(options);
}

Geometry muonclip(const MuonClipOptions& options) {
  const Geometry geometry = muon({options.hidden, MuonScale::kMatchAdam, options.weight_decay, options.adamw});
  return Geometry(geometry.rules(), Momentum::ema(0.95));
}

Geometry unscion(const UnscionOptions& options) { return Geometry(scion_rules(options, 1, 1)); }

Geometry scion(const ScionOptions& options) {
  const double gamma = options.gamma, conv_gamma = options.conv_gamma;
  GLUON_CHECK(gamma > 0 && gamma <= 1, "scion: gamma must be in (0, 1], got ", gamma);
  GLUON_CHECK(conv_gamma > 0 && conv_gamma <= 1, "scion: conv_gamma must be in (0, 1], got ", conv_gamma);
  std::vector<Rule> rules = scion_rules(options, gamma, conv_gamma);
  for (Rule& rule : rules) {
    const bool with_convolutions = rule.role == Role::kConv || rule.beside == Role::kConv;
    rule.ball = *rule.radius->constant() / (with_convolutions ? conv_gamma : gamma);
  }
  return Geometry(std::move(rules));
}

Geometry sphere(const SphereOptions& options) {
  // The law fits sweeps of a GPT and a CNN, both prototypes of at most 1024 steps; docs/tuning.md.
  constexpr double kStep = 0.45, kPower = 0.4;
  const bool follows_steps = !options.hidden || !options.conv;
  GLUON_CHECK(options.steps >= (follows_steps ? 1 : 0),
              "sphere: steps must be >= 1, the length of the run, from which the relative steps follow, got ",
              options.steps);
  GLUON_CHECK(std::isfinite(options.factor) && options.factor > 0, "sphere: factor must be > 0 and finite, got ",
              options.factor);
  const auto by_law = [&](const std::optional<double>& given) {
    return given ? Radius(*given) : horizon_radius(options.factor * kStep, kPower, options.steps);
  };
  const Radius hidden = by_law(options.hidden), conv = by_law(options.conv);
  const auto or_else = [](const std::optional<double>& given, const Radius& other) {
    return given ? Radius(*given) : other;
  };
  return Geometry({
      {.role = Role::kHidden, .norm = kHiddenNorm, .radius = hidden, .sphere = Sphere()},
      {.role = Role::kConv, .norm = kConvNorm, .radius = conv, .sphere = Sphere()},
      {.role = Role::kEmbedding,
       .beside = Role::kHead,
       .norm = kTokenNorm,
       .radius = or_else(options.untied_embedding, hidden)},
      {.role = Role::kEmbedding, .norm = kHeadNorm, .radius = options.embedding},
      {.role = Role::kHead, .norm = kHeadNorm, .radius = options.head.value_or(options.embedding)},
      {.role = Role::kVector,
       .beside = Role::kConv,
       .without = Role::kHidden,
       .norm = kVectorNorm,
       .radius = or_else(options.vector, conv)},
      {.norm = kVectorNorm, .radius = or_else(options.vector, hidden)},
  });
}

Geometry sign_descent(double radius) { return Geometry({{.norm = "max_entry", .radius = radius}}); }

Geometry normalized_descent(double radius) { return Geometry({{.norm = "euclidean", .radius = radius}}); }

Geometry sgd(double learning_rate) {
  return Geometry({{.norm = "euclidean", .radius = steepest_radius(learning_rate)}});
}

Geometry deterministic_gluon(const DeterministicOptions& options) {
  std::vector<Rule> rules = options.norms.rules();
  for (Rule& rule : rules) {
    GLUON_CHECK(!rule.norm.is_adamw(), "deterministic_gluon: needs a norm for every layer, got an AdamW rule");
    rule.radius = smooth_radius(options.l0, options.l1);
    rule.norm = with_exact_lmo(rule.norm);
    rule.normalize = {};
    rule.decay = {};
    rule.ball.reset();
    rule.sphere.reset();
  }
  return Geometry(std::move(rules), Momentum::none());
}

Geometry adamw(double learning_rate, double weight_decay) {
  return Geometry({{.norm = "adamw", .radius = learning_rate, .decay = weight_decay}});
}

bool is_muon(std::string_view name) {
  return is_called(name, "muon") || is_called(name, "normuon") || name == "muonclip";
}

Geometry make(std::string_view name, const Radii& radii) {
  const auto single = [&](double value) {
    read_radii(name, radii, {{"all", &value}});
    return value;
  };
  if (name == "muonclip") {
    MuonClipOptions options;
    read_radii(name, radii, {{"hidden", &options.hidden}, {"adamw", &options.adamw}});
    return muonclip(options);
  }
  if (is_muon(name)) {
    MuonOptions options{.scale = muon_scale(name)};
    read_radii(name, radii, {{"hidden", &options.hidden}, {"adamw", &options.adamw}});
    return is_called(name, "muon") ? muon(options) : normuon(options);
  }
  if (name == "unscion") {
    UnscionOptions options;
    read_radii(name, radii, scion_fields(options));
    return unscion(options);
  }
  if (name == "scion") {
    ScionOptions options;
    Fields fields = scion_fields(options);
    fields.insert(fields.begin(), {{"gamma", &options.gamma}, {"conv_gamma", &options.conv_gamma}});
    read_radii(name, radii, fields);
    return scion(options);
  }
  if (name == "sphere") {
    SphereOptions options;
    std::optional<double> steps;
    Fields fields = scion_fields(options);
    fields.insert(fields.begin(), {{"steps", &steps}, {"factor", &options.factor}});
    read_radii(name, radii, fields);
    if (steps) options.steps = whole_steps(*steps);
    return sphere(options);
  }
  if (name == "sign_descent") return sign_descent(single(3e-4));
  if (name == "normalized_descent") return normalized_descent(single(0.02));
  if (name == "sgd") return sgd(single(0.1));
  if (name == "deterministic_gluon") {
    DeterministicOptions options{.norms = unscion()};
    read_radii(name, radii, {{"L0", &options.l0}, {"L1", &options.l1}});
    return deterministic_gluon(options);
  }
  if (name == "adamw") return adamw(single(3e-4));
  throw InputError(
      join("preset: unknown name '", name,
           "'; allowed are muon, muon(none), muon(aspect), muon(match_adam), normuon (with the same scales), muonclip, "
           "scion, unscion, sphere, sign_descent, normalized_descent, sgd, deterministic_gluon, adamw"));
}

}  // namespace gluon::presets
