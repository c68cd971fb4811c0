#include "lab/train/tuned_config.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <sstream>

#include "gluon/core/check.h"
#include "gluon/geometry/presets.h"
#include "lab/train/radius_flag.h"

namespace gluon::lab {
namespace {

// Four digits: a measured radius is not more accurate.
std::string short_text(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

bool has_group(std::span<const GroupRadius> radii, std::string_view group) {
  return std::any_of(radii.begin(), radii.end(), [&](const GroupRadius& radius) { return radius.group == group; });
}

// The key of --radius for a group (presets.h).
std::string key_of(const GroupRadius& radius, std::span<const GroupRadius> all) {
  if (radius.group == "embedding" && has_group(all, "head")) return "untied_embedding";
  if (radius.group == "scalar") return "vector";
  return radius.group;
}

// "hidden=0.01,embedding=1": the value of each group.
std::string radius_text(std::span<const GroupRadius> radii, const std::function<double(const GroupRadius&)>& value) {
  std::map<std::string, double> values;
  for (const GroupRadius& radius : radii) values.emplace(key_of(radius, radii), value(radius));
  std::string text;
  for (const auto& [key, number] : values) text += join(text.empty() ? "" : ",", key, "=", short_text(number));
  return text;
}

// "head.weight=smooth(0,0.03),...": the constants of each layer, and "L0=...,L1=..." for layers that have none.
std::string constants_text(const TrajectoryFit& fits) {
  std::string text;
  std::size_t layers = 0;
  double l0 = 0, l1 = 0;
  for (const LayerFit& layer : deciding_fits(fits)) {
    if (layer.fit.l0 + layer.fit.l1 == 0) continue;  // its gradient never changed
    const std::string constants = join(short_text(layer.fit.l0), ",", short_text(layer.fit.l1));
    text += join(text.empty() ? "" : ",", layer.layer, "=smooth(", constants, ")");
    l0 = std::max(l0, layer.fit.l0);
    l1 = std::max(l1, layer.fit.l1);
    ++layers;
  }
  const bool all = layers == fits.layers.size() + fits.unfitted.size();
  return all ? text : join(text, ",L0=", short_text(l0), ",L1=", short_text(l1));
}

double unscion_default(const std::string& group) {
  const presets::UnscionOptions defaults;
  if (group == "hidden") return defaults.hidden;
  if (group == "conv") return defaults.conv;
  if (group == "embedding") return defaults.embedding;
  throw InputError(join("tune: expected hidden layers, convolutions or an embedding, got group ", group));
}

}  // namespace

TrainConfig tuned_config(const TrainConfig& run, std::span<const GroupRadius> radii, const TrajectoryFit& fits) {
  GLUON_CHECK(!radii.empty(), "tune: no radii");
  GLUON_CHECK(run.smoothness_geometry.empty() || run.smoothness_geometry == run.preset ||
                  (run.preset == "adamw" && run.smoothness_geometry == "unscion"),
              "tune: the run was measured in the norms of ", run.smoothness_geometry, ", its preset is ", run.preset,
              ": the radii do not apply");
  TrainConfig next = run;
  next.out.clear();
  if (run.preset == "unscion" || run.preset == "sphere") {  // a relative step is the radius in the layer's norm
    next.radius = radius_text(radii, &GroupRadius::predicted);
  } else if (run.preset == "scion") {
    // --radius sets the radii of the balls; a step moves by gamma times those.
    const presets::ScionOptions defaults;
    std::map<std::string, double> given = parse_radii(run.radius);
    const auto factor = [&](const std::string& key, double own) { return given.count(key) ? given[key] : own; };
    const double gamma = has_group(radii, "conv") && !has_group(radii, "hidden")
                             ? factor("conv_gamma", defaults.conv_gamma)
                             : factor("gamma", defaults.gamma);
    next.radius = radius_text(radii, [&](const GroupRadius& radius) { return radius.predicted / gamma; });
    for (const char* key : {"gamma", "conv_gamma"}) {
      if (given.count(key)) next.radius += join(",", key, "=", short_text(given[key]));
    }
  } else if (presets::is_muon(run.preset)) {
    for (const GroupRadius& radius : radii) {
      if (radius.group == "hidden" || radius.group == "conv") next.radius = "hidden=" + short_text(radius.predicted);
    }
    const std::map<std::string, double> given = parse_radii(run.radius);
    if (given.contains("adamw")) next.radius += join(",adamw=", short_text(given.at("adamw")));
  } else if (run.preset == "deterministic_gluon") {
    next.radius = constants_text(fits);
  } else if (run.preset == "sgd") {  // its number is t / |g|*
    const auto rate = [](const GroupRadius& radius) { return radius.predicted / radius.gradient; };
    next.radius = "all=" + short_text(rate(std::ranges::min(radii, {}, rate)));
  } else if (run.preset == "adamw") {
    const double scale = unscion_default(radii.front().group) / radii.front().predicted;
    next.preset = "unscion";
    next.lr = 0;
    next.clip = TrainConfig{}.clip;
    next.radius = radius_text(radii, [&](const GroupRadius& radius) { return scale * radius.predicted; });
  } else {  // one radius for all groups must suit the stiffest
    next.radius = "all=" + short_text(std::ranges::min(radii, {}, &GroupRadius::predicted).predicted);
  }
  return next;
}

}  // namespace gluon::lab
