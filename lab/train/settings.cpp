#include "lab/train/settings.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "gluon/core/spec.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/update/optimizer_options.h"
#include "lab/models/nanogpt.h"
#include "lab/models/zoo.h"
#include "lab/train/config_fields.h"

namespace gluon::lab {
namespace {

// The rule that each role of the config's model follows.
std::vector<std::pair<std::string, Rule>> rules_by_role(const TrainConfig& config) {
  const std::vector<Role> roles = is_language_model(config.model)
                                      ? std::vector{Role::kHidden, Role::kEmbedding}
                                      : std::vector{Role::kConv, Role::kVector, Role::kHead};
  std::vector<Layer> layers;
  for (const Role role : roles) {
    layers.push_back({.name = std::string(role_name(role)), .parameter = at::empty({1, 1}), .role = role});
  }
  const Geometry geometry = config.geometry();
  const std::vector<std::size_t> assigned = geometry.assign(layers);
  std::vector<std::pair<std::string, Rule>> rules;
  for (std::size_t i = 0; i < layers.size(); ++i) rules.emplace_back(layers[i].name, geometry.rules()[assigned[i]]);
  return rules;
}

std::string radius_text(const Rule& rule) {
  const auto constant = rule.radius->constant();
  const std::string radius = constant ? join(*constant) : rule.radius->name();
  if (rule.sphere) return radius + " on a sphere";
  return rule.ball ? join(radius, " in a ball of ", *rule.ball) : radius;
}

// One value for all roles, or each role with its own.
std::string by_role(const std::vector<std::pair<std::string, std::string>>& values) {
  const auto differs = [&](const auto& entry) { return entry.second != values.front().second; };
  if (std::ranges::none_of(values, differs)) return values.front().second;
  std::string text;
  for (const auto& [role, value] : values) text += join(text.empty() ? "" : ", ", role, "=", value);
  return text;
}

class Resolver {
 public:
  explicit Resolver(const TrainConfig& config) : config_(config) {
    add_model();
    add_data();
    add_optimizer();
    add_run();
    add_smoothness();
  }

  Settings settings() const {
    Settings all = written_settings(config_);
    std::erase_if(all, [&](const auto& entry) { return without_effect_.contains(entry.first); });
    for (auto& [key, value] : all) {
      const auto found = values_.find(key);
      if (found != values_.end()) value = found->second;
    }
    return all;
  }

 private:
  void set(const std::string& key, const auto& value) { values_[key] = join(value); }
  void set_default(const std::string& key, int64_t given, const auto& value) {
    if (given == 0) set(key, value);
  }
  void leave_out(std::initializer_list<const char*> keys) { without_effect_.insert(keys.begin(), keys.end()); }

  void add_model() {
    if (!is_language_model(config_.model)) {
      leave_out({"layers", "width", "heads", "seq", "vocabulary", "qk-norm"});
      return;
    }
    const NanoGptOptions standard = nanogpt_options(config_.model);
    set_default("layers", config_.layers, standard.layers);
    set_default("width", config_.width, standard.width);
    set_default("heads", config_.heads, standard.heads);
    set_default("seq", config_.seq, standard.context);
    if (config_.vocabulary > 0) return;
    config_.model == "nanogpt-tiny" ? set("vocabulary", "that of the data") : set("vocabulary", standard.vocabulary);
  }

  void add_data() {
    if (is_language_model(config_.model)) {
      leave_out({"train-images", "test-images"});
      if (config_.data.empty()) set("data", "the project's own sources");
      if (config_.vocab.empty()) set("vocab", "none: bytes or token shards");
      if (config_.val_data.empty()) set("val-data", "the end of the data");
      set_default("val-tokens", config_.val_tokens,
                  config_.val_data.empty() ? "a tenth of the data, at most 64 windows" : "all");
    } else {
      leave_out({"vocab", "val-data", "val-tokens"});
      set_default("train-images", config_.train_images, "all");
      set_default("test-images", config_.test_images, "all");
    }
    if (config_.full_batch) leave_out({"accumulate"});
    set_default("parts", config_.parts, config_.parts_for(0));
  }

  void add_optimizer() {
    std::string radii;
    std::vector<std::pair<std::string, std::string>> decays, normalized;
    bool plain_decay = true;
    std::optional<double> learning_rate;
    bool spectral = false;
    for (const auto& [role, rule] : rules_by_role(config_)) {
      decays.emplace_back(role, rule.decay.name());
      plain_decay = plain_decay && rule.decay.constant();
      if (rule.norm.is_spectral()) normalized.emplace_back(role, rule.normalize.name());
      if (rule.norm.is_adamw()) {
        learning_rate = rule.radius->constant();
        continue;
      }
      spectral = spectral || rule.norm.is_spectral();
      radii += join(radii.empty() ? "" : ", ", role, "=", radius_text(rule));
    }
    set(plain_decay ? "weight-decay" : "decay", by_role(decays));
    leave_out({plain_decay ? "decay" : "weight-decay"});
    normalized.empty() ? leave_out({"normalize"}) : set("normalize", by_role(normalized));
    radii.empty() ? leave_out({"radius", "momentum"}) : set("radius", radii);
    learning_rate ? set("lr", *learning_rate) : leave_out({"lr"});
    if (config_.preset != "adamw") leave_out({"clip"});
    const double largest_logit = config_.resolved_qk_clip();
    largest_logit > 0 ? set("qk-clip", largest_logit) : leave_out({"qk-clip"});
    if (!spectral) leave_out({"orthogonalizer"});
    if (config_.momentum.empty()) set("momentum", config_.geometry().momentum().name());
    if (config_.orthogonalizer.empty()) set("orthogonalizer", OptimizerOptions{}.orthogonalizer);
    set("schedule", config_.resolved_schedule().name());
    set("label-smoothing", config_.resolved_label_smoothing());
  }

  void add_run() {
    if (config_.on_nan == "error") leave_out({"nan-limit"});
    if (config_.on_gpu()) return;
    leave_out({"cuda-graph", "deterministic"});
    set("precision", "float32");
  }

  void add_smoothness() {
    if (config_.smoothness_every == 0) {
      set("smoothness-every", "never");
      leave_out({"smoothness-start", "smoothness-mode", "smoothness-geometry", "smoothness-dual"});
      return;
    }
    set("smoothness-mode", estimator_name(config_.estimator()));
    if (config_.smoothness_geometry.empty()) {
      set("smoothness-geometry", config_.preset == "adamw" ? "unscion" : config_.preset);
    }
    if (config_.smoothness_dual == "auto") {
      set("smoothness-dual", config_.on_gpu() ? "auto" : "exact");
    }
  }

  const TrainConfig& config_;
  std::map<std::string, std::string> values_;
  std::set<std::string> without_effect_;
};

}  // namespace

Settings resolved_settings(const TrainConfig& config) { return Resolver(config).settings(); }

Settings written_settings(const TrainConfig& config) {
  Settings settings;
  for (const ConfigField& field : config_fields()) settings.emplace_back(field.name, value_text(config, field));
  return settings;
}

}  // namespace gluon::lab
