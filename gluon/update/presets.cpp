#include "gluon/update/presets.h"

#include <cmath>
#include <iterator>
#include <vector>

#include "gluon/check.h"

namespace gluon::presets {
namespace {

constexpr const char* kHiddenNorm = "scaled(sqrt(n/m),spectral)";
constexpr const char* kConvNorm = "scaled(sqrt(kernel*n/m),spectral)";
constexpr const char* kHeadNorm = "scaled(n,max_entry)";
constexpr const char* kUntiedEmbeddingNorm = "scaled(1/sqrt(n),rows)";
constexpr const char* kVectorNorm = "scaled(1/sqrt(m),euclidean)";

std::string muon_norm(MuonScale scale) {
  switch (scale) {
    case MuonScale::kNone:
      return "spectral";
    case MuonScale::kAspect:
      return "scaled(1/sqrt(max(1,m/n)),spectral)";
    case MuonScale::kMatchAdam:
      return "scaled(1/(0.2*sqrt(max(m,n))),spectral)";
  }
  return {};
}

struct ScionRadii {
  double hidden, conv, head, vector;
};

// The norms of Scion for models that have a layer of the role `beside`, or for all.
std::vector<Rule> scion_rules(const ScionRadii& t, std::optional<Role> beside) {
  return {
      {.role = Role::kHidden, .beside = beside, .norm = kHiddenNorm, .radius = t.hidden},
      {.role = Role::kConv, .beside = beside, .norm = kConvNorm, .radius = t.conv},
      {.role = Role::kHead, .beside = beside, .norm = kHeadNorm, .radius = t.head},
      {.role = Role::kVector, .beside = beside, .norm = kVectorNorm, .radius = t.vector},
      {.role = Role::kScalar, .beside = beside, .norm = kVectorNorm, .radius = t.vector},
  };
}

std::vector<Rule> embedding_rules(double radius) {
  return {{.role = Role::kEmbedding, .beside = Role::kHead, .norm = kUntiedEmbeddingNorm, .radius = radius},
          {.role = Role::kEmbedding, .norm = kHeadNorm, .radius = radius}};
}

void append(std::vector<Rule>& rules, std::vector<Rule> more) {
  std::move(more.begin(), more.end(), std::back_inserter(rules));
}

void keep_in_ball(std::vector<Rule>& rules, double gamma) {
  for (Rule& rule : rules) rule.ball = *rule.radius->constant() / gamma;
}

using Radii = std::map<std::string, double>;

// Reads the radii a preset has by key and refuses the others.
class Keys {
 public:
  Keys(std::string_view preset, const Radii& radii) : preset_(preset), left_(radii) {}

  void read(const std::string& key, double& value) {
    allowed_ += (allowed_.empty() ? "" : ", ") + key;
    if (const auto node = left_.extract(key)) value = node.mapped();
  }
  void read(const std::string& key, std::optional<double>& value) {
    double given = std::nan("");
    read(key, given);
    if (!std::isnan(given)) value = given;
  }
  void finish() const {
    GLUON_CHECK(left_.empty(), "preset ", preset_, ": unknown radius '", left_.begin()->first,
                "'; allowed are ", allowed_);
  }

 private:
  std::string_view preset_;
  Radii left_;
  std::string allowed_;
};

template <typename Options>
void read_scion_radii(Keys& keys, Options& options) {
  keys.read("hidden", options.hidden);
  keys.read("embedding", options.embedding);
  keys.read("conv", options.conv);
  keys.read("head", options.head);
  keys.read("vector", options.vector);
}

}  // namespace

Geometry muon(const MuonOptions& options) {
  const auto spectral = [&](Role role) {
    return Rule{.role = role,
                .norm = muon_norm(options.scale),
                .radius = options.hidden,
                .weight_decay = options.weight_decay};
  };
  return Geometry({spectral(Role::kHidden),
                   spectral(Role::kConv),
                   {.norm = "adamw", .radius = options.adamw, .weight_decay = options.weight_decay}},
                  Momentum::nesterov(0.95));
}

Geometry unscion(const UnscionOptions& options) {
  const auto& [hidden, embedding, conv, head, vector] = options;
  std::vector<Rule> rules =
      scion_rules({hidden, conv, head.value_or(100 * conv), vector.value_or(conv)}, Role::kConv);
  append(rules, scion_rules({hidden, conv, head.value_or(embedding), vector.value_or(hidden)}, std::nullopt));
  append(rules, embedding_rules(embedding));
  return Geometry(std::move(rules));
}

Geometry scion(const ScionOptions& options) {
  const auto& [gamma, conv_gamma, hidden, embedding, conv, head, vector] = options;
  for (const double g : {gamma, conv_gamma}) {
    GLUON_CHECK(g > 0 && g <= 1, "scion: gamma must be in (0, 1], got ", g);
  }
  const auto scaled = [](double g, ScionRadii rho) {
    return ScionRadii{g * rho.hidden, g * rho.conv, g * rho.head, g * rho.vector};
  };
  std::vector<Rule> rules = scion_rules(
      scaled(conv_gamma, {hidden, conv, head.value_or(100 * conv), vector.value_or(conv)}), Role::kConv);
  keep_in_ball(rules, conv_gamma);
  std::vector<Rule> others = scion_rules(
      scaled(gamma, {hidden, conv, head.value_or(embedding), vector.value_or(hidden)}), std::nullopt);
  append(others, embedding_rules(gamma * embedding));
  keep_in_ball(others, gamma);
  append(rules, std::move(others));
  return Geometry(std::move(rules));
}

Geometry sign_descent(double radius) { return Geometry({{.norm = "max_entry", .radius = radius}}); }

Geometry normalized_descent(double radius) { return Geometry({{.norm = "euclidean", .radius = radius}}); }

Geometry deterministic_gluon(const DeterministicOptions& options) {
  std::vector<Rule> rules = options.norms.rules();
  for (Rule& rule : rules) {
    GLUON_CHECK(!rule.norm.is_adamw(),
                "deterministic_gluon: needs a norm for every layer, got an AdamW rule");
    rule.radius = smooth_radius(options.l0, options.l1);
    rule.weight_decay = 0;
    rule.ball.reset();
  }
  return Geometry(std::move(rules), Momentum::none());
}

Geometry adamw(double learning_rate, double weight_decay) {
  return Geometry({{.norm = "adamw", .radius = learning_rate, .weight_decay = weight_decay}});
}

Geometry make(std::string_view name, const Radii& radii) {
  Keys keys(name, radii);
  const auto single = [&](double value) {
    keys.read("all", value);
    keys.finish();
    return value;
  };
  if (name == "muon") {
    MuonOptions options;
    keys.read("hidden", options.hidden);
    keys.read("adamw", options.adamw);
    keys.finish();
    return muon(options);
  }
  if (name == "unscion") {
    UnscionOptions options;
    read_scion_radii(keys, options);
    keys.finish();
    return unscion(options);
  }
  if (name == "scion") {
    ScionOptions options;
    keys.read("gamma", options.gamma);
    keys.read("conv_gamma", options.conv_gamma);
    read_scion_radii(keys, options);
    keys.finish();
    return scion(options);
  }
  if (name == "sign_descent") return sign_descent(single(3e-4));
  if (name == "normalized_descent") return normalized_descent(single(0.02));
  if (name == "deterministic_gluon") {
    DeterministicOptions options{.norms = unscion()};
    keys.read("L0", options.l0);
    keys.read("L1", options.l1);
    keys.finish();
    return deterministic_gluon(options);
  }
  if (name == "adamw") return adamw(single(3e-4));
  throw InputError(join("preset: unknown name '", name,
                        "'; allowed are muon, scion, unscion, sign_descent, normalized_descent, "
                        "deterministic_gluon, adamw"));
}

}  // namespace gluon::presets
