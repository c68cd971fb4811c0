#include "lab/train/effect.h"

#include <algorithm>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "lab/models/zoo.h"
#include "lab/train/radius_flag.h"

namespace gluon::lab {
namespace {

// One that leaves the choice of the orthogonalizer: "spectral(svd)" does not.
bool takes_orthogonalizer(const Rule& rule) {
  constexpr std::string_view kSpectral = "spectral";
  const std::string& name = rule.norm.name();
  const std::size_t at = name.find(kSpectral);
  return at != std::string::npos && !name.substr(at + kSpectral.size()).starts_with('(');
}

void check_model_flags(const TrainConfig& config) {
  if (is_language_model(config.model)) {
    GLUON_CHECK(config.train_images == 0 && config.test_images == 0,
                "--train-images and --test-images need --model cifar-cnn, got --model ", config.model);
    return;
  }
  GLUON_CHECK(config.val_data.empty() && config.val_tokens == 0, config.model,
              " validates on the test images of --data; it does not take --val-data or --val-tokens");
  GLUON_CHECK(config.layers == 0 && config.width == 0 && config.heads == 0 && config.seq == 0 && config.vocabulary == 0,
              config.model, " does not take --layers, --width, --heads, --seq or --vocabulary");
  GLUON_CHECK(config.qk_norm, config.model, " does not take --qk-norm, it has no queries and keys");
  GLUON_CHECK(config.vocab.empty(), config.model, " does not take --vocab, which tokenizes text, got ", config.vocab);
}

void check_qk_clip(const TrainConfig& config, const Geometry& geometry) {
  if (config.qk_clip == 0 || (config.qk_clip < 0 && config.preset != "muonclip")) return;
  const bool given = config.qk_clip > 0;
  const std::string flag = given ? join("--qk-clip ", config.qk_clip) : "--preset muonclip";
  const char* otherwise = given ? "" : ", or --qk-clip 0 for its steps alone";
  GLUON_CHECK(is_language_model(config.model), flag, " clips attention logits, which ", config.model,
              " does not have: choose another --model", otherwise);
  GLUON_CHECK(!config.qk_norm, flag, " clips attention logits, which QK norm bounds already: give --qk-norm 0",
              otherwise);
  GLUON_CHECK(std::ranges::none_of(geometry.rules(), [](const Rule& rule) { return rule.sphere.has_value(); }), flag,
              " has no effect on preset ", config.preset, ", whose spheres give projections their length back");
}

void check_smoothness_flags(const TrainConfig& config) {
  const TrainConfig standard;
  const std::pair<const char*, std::string TrainConfig::*> flags[] = {
      {"--smoothness-mode", &TrainConfig::smoothness_mode},
      {"--smoothness-geometry", &TrainConfig::smoothness_geometry},
      {"--smoothness-dual", &TrainConfig::smoothness_dual}};
  for (const auto& [flag, member] : flags) {
    GLUON_CHECK(config.smoothness_every > 0 || config.*member == standard.*member, flag,
                " has no effect without --smoothness-every, got ", config.*member);
  }
  const int64_t every = config.smoothness_every, start = config.smoothness_start;
  GLUON_CHECK(every > 0 || start == 0, "--smoothness-start has no effect without --smoothness-every, got ", start);
  GLUON_CHECK(every == 0 || config.steps > 1, "--smoothness-every ", every,
              " leaves no sample: one spans two steps, got --steps ", config.steps);
  // A sample ends in the step after the one where it begins.
  const int64_t last = every > 0 ? (config.steps - 2) / every * every : 0;
  GLUON_CHECK(start <= last, "--smoothness-start ", start, " leaves no sample: with --steps ", config.steps,
              " and --smoothness-every ", every, " the last begins at step ", last);
  const Geometry measuring = config.measuring_geometry();
  GLUON_CHECK(config.smoothness_dual == standard.smoothness_dual ||
                  std::ranges::any_of(measuring.rules(), [](const Rule& rule) { return rule.norm.is_spectral(); }),
              "--smoothness-dual has no effect on norms none of which is spectral, got ", config.smoothness_dual);
}

// Another value that the entry could have.
std::string changed(const RadiusEntry& entry) {
  if (!entry.is_number_of_preset()) return entry.value == "power(1)" ? "power(2)" : "power(1)";
  const double radius = parse_number(entry.value, "--radius");
  return number_text(radius > 0 ? radius / 2 : 1);
}

}  // namespace

void check_effect(const TrainConfig& config) {
  GLUON_CHECK(config.preset != "adamw" || config.momentum.empty(), "--momentum has no effect on preset adamw, got ",
              config.momentum);
  GLUON_CHECK(config.preset == "adamw" || config.clip == TrainConfig{}.clip, "--clip has no effect on preset ",
              config.preset, ", only on adamw, got ", config.clip);
  const Geometry geometry = config.geometry();
  GLUON_CHECK(config.orthogonalizer.empty() || std::ranges::any_of(geometry.rules(), takes_orthogonalizer),
              "--orthogonalizer has no effect on preset ", config.preset,
              ", which has no spectral norm that leaves the choice, got ", config.orthogonalizer);
  const auto is_spectral = [](const Rule& rule) { return rule.norm.is_spectral(); };
  GLUON_CHECK(config.normalize.empty() || std::ranges::any_of(geometry.rules(), is_spectral),
              "--normalize has no effect on preset ", config.preset, ", which has no spectral norm, got ",
              config.normalize);
  GLUON_CHECK(config.on_nan != "error" || config.nan_limit == TrainConfig{}.nan_limit,
              "--nan-limit has no effect with --on-nan error, got ", config.nan_limit);
  check_model_flags(config);
  check_qk_clip(config, geometry);
  check_smoothness_flags(config);
}

void check_radius_effect(const TrainConfig& config, std::span<const Layer> layers) {
  const std::string routing = config.geometry().routing_report(layers);
  if (config.radius == kAutoRadius) {
    TrainConfig other = config;
    other.radius = "factor=2";
    GLUON_CHECK(other.geometry().routing_report(layers) != routing, "--radius auto has no effect: ", config.model,
                " has no layers that preset ", config.preset, " moves by its law");
  }
  const std::vector<RadiusEntry> entries = radius_entries(config.radius);
  for (const RadiusEntry& entry : entries) {
    TrainConfig other = config;
    other.radius.clear();
    for (const auto& [key, value] : entries) {
      other.radius += join(other.radius.empty() ? "" : ",", key, "=", key == entry.key ? changed(entry) : value);
    }
    GLUON_CHECK(other.geometry().routing_report(layers) != routing, "--radius ", entry.key, "=", entry.value,
                " has no effect: ", config.model, " has no layers that preset ", config.preset, " moves by it");
  }
}

}  // namespace gluon::lab
