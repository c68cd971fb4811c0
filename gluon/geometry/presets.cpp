#include "gluon/geometry/presets.h"

#include <vector>

#include "gluon/core/check.h"

namespace gluon::presets {
namespace {

constexpr const char* kHiddenNorm = "scaled(sqrt(n/m),spectral)";
constexpr const char* kConvNorm = "scaled(sqrt(kernel*n/m),spectral)";
constexpr const char* kHeadNorm = "scaled(n,max_entry)";
constexpr const char* kUntiedEmbeddingNorm = "scaled(1/sqrt(n),rows)";
constexpr const char* kVectorNorm = "scaled(1/sqrt(m),euclidean)";

std::string muon_norm(MuonScale scale) {
  switch (scale) {
    case MuonScale::kNone: return "spectral";
    case MuonScale::kAspect: return "scaled(1/sqrt(max(1,m/n)),spectral)";
    case MuonScale::kMatchAdam: return "scaled(1/(0.2*sqrt(max(m,n))),spectral)";
  }
  return {};
}

// Scion's norms. Radii t and, for the constrained form, gamma = t / ball, where head and vectors of a pure CNN (with
// convolutions, without hidden layers) go with the convolutions.
struct ScionRadii {
  double hidden, embedding, untied_embedding, conv, head, cnn_head, vector, cnn_vector;
};

std::vector<Rule> scion_rules(const ScionRadii& t) {
  const auto in_cnn = [](Role role, const char* norm, double radius) {
    return Rule{.role = role, .beside = Role::kConv, .without = Role::kHidden, .norm = norm, .radius = radius};
  };
  return {
      {.role = Role::kHidden, .norm = kHiddenNorm, .radius = t.hidden},
      {.role = Role::kConv, .norm = kConvNorm, .radius = t.conv},
      {.role = Role::kEmbedding, .beside = Role::kHead, .norm = kUntiedEmbeddingNorm, .radius = t.untied_embedding},
      {.role = Role::kEmbedding, .norm = kHeadNorm, .radius = t.embedding},
      in_cnn(Role::kHead, kHeadNorm, t.cnn_head),
      {.role = Role::kHead, .norm = kHeadNorm, .radius = t.head},
      in_cnn(Role::kVector, kVectorNorm, t.cnn_vector),
      {.norm = kVectorNorm, .radius = t.vector},
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

// Reads the radii a preset has by key and refuses the others.
class Keys {
 public:
  Keys(std::string_view preset, const Radii& radii) : preset_(preset), left_(radii) {}

  void read(const std::string& key, double& value) {
    allowed_ += (allowed_.empty() ? "" : ", ") + key;
    if (const auto node = left_.extract(key)) value = node.mapped();
  }
  void read(const std::string& key, std::optional<double>& value) {
    const bool given = left_.contains(key);
    double radius = 0;
    read(key, radius);
    if (given) value = radius;
  }
  void finish() const {
    GLUON_CHECK(left_.empty(), "preset ", preset_, ": unknown radius '", left_.begin()->first, "'; allowed are ",
                allowed_);
  }

 private:
  std::string_view preset_;
  Radii left_;
  std::string allowed_;
};

template <typename Options> void read_scion_radii(Keys& keys, Options& options) {
  keys.read("hidden", options.hidden);
  keys.read("embedding", options.embedding);
  keys.read("conv", options.conv);
  keys.read("untied_embedding", options.untied_embedding);
  keys.read("head", options.head);
  keys.read("vector", options.vector);
}

}  // namespace

Geometry muon(const MuonOptions& options) {
  const auto spectral = [&](Role role) {
    return Rule{
        .role = role, .norm = muon_norm(options.scale), .radius = options.hidden, .weight_decay = options.weight_decay};
  };
  const auto adamw = [&](Role role) {
    return Rule{.role = role, .norm = "adamw", .radius = options.adamw, .weight_decay = options.weight_decay};
  };
  return Geometry({spectral(Role::kHidden),
                   spectral(Role::kConv),
                   adamw(Role::kEmbedding),
                   adamw(Role::kHead),
                   {.norm = "adamw", .radius = options.adamw}},
                  Momentum::nesterov(0.95));
}

Geometry unscion(const UnscionOptions& options) {
  const auto& [hidden, embedding, conv, untied_embedding, head, vector] = options;
  return Geometry(scion_rules({.hidden = hidden,
                               .embedding = embedding,
                               .untied_embedding = untied_embedding.value_or(hidden),
                               .conv = conv,
                               .head = head.value_or(embedding),
                               .cnn_head = head.value_or(100 * conv),
                               .vector = vector.value_or(hidden),
                               .cnn_vector = vector.value_or(conv)}));
}

Geometry scion(const ScionOptions& options) {
  const auto& [gamma, conv_gamma, hidden, embedding, conv, untied_embedding, head, vector] = options;
  GLUON_CHECK(gamma > 0 && gamma <= 1, "scion: gamma must be in (0, 1], got ", gamma);
  GLUON_CHECK(conv_gamma > 0 && conv_gamma <= 1, "scion: conv_gamma must be in (0, 1], got ", conv_gamma);
  std::vector<Rule> rules = scion_rules({.hidden = gamma * hidden,
                                         .embedding = gamma * embedding,
                                         .untied_embedding = gamma * untied_embedding.value_or(hidden),
                                         .conv = conv_gamma * conv,
                                         .head = gamma * head.value_or(embedding),
                                         .cnn_head = conv_gamma * head.value_or(100 * conv),
                                         .vector = gamma * vector.value_or(hidden),
                                         .cnn_vector = conv_gamma * vector.value_or(conv)});
  for (Rule& rule : rules) {
    const bool with_convolutions = rule.role == Role::kConv || rule.beside == Role::kConv;
    rule.ball = *rule.radius->constant() / (with_convolutions ? conv_gamma : gamma);
  }
  return Geometry(std::move(rules));
}

Geometry sign_descent(double radius) { return Geometry({{.norm = "max_entry", .radius = radius}}); }

Geometry normalized_descent(double radius) { return Geometry({{.norm = "euclidean", .radius = radius}}); }

Geometry deterministic_gluon(const DeterministicOptions& options) {
  std::vector<Rule> rules = options.norms.rules();
  for (Rule& rule : rules) {
    GLUON_CHECK(!rule.norm.is_adamw(), "deterministic_gluon: needs a norm for every layer, got an AdamW rule");
    rule.radius = smooth_radius(options.l0, options.l1);
    rule.norm = with_exact_lmo(rule.norm);
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
