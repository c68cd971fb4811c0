#include "lab/train/tuned_config.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <set>
#include <sstream>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/geometry/presets.h"
#include "lab/train/config_fields.h"
#include "lab/train/radius_flag.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {
namespace {

constexpr std::string_view kMark = "# by gluon tune";

// Four digits: a measured radius is not more accurate.
std::string short_text(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

bool has_group(std::span<const GroupRadius> radii, std::string_view group) {
  return std::any_of(radii.begin(), radii.end(), [&](const GroupRadius& radius) { return radius.group == group; });
}

using Groups = std::set<std::string>;

struct NamedLayer {
  std::string name;
  std::string group;
};

std::vector<NamedLayer> layers_of(const TrajectoryFit& fits) {
  std::vector<NamedLayer> layers;
  for (const LayerFit& layer : fits.layers) layers.push_back({layer.layer, layer.group});
  for (const UnfittedLayer& layer : fits.unfitted) layers.push_back({layer.layer, layer.group});
  return layers;
}

// All groups of the model.
Groups groups_of(std::span<const GroupRadius> radii, const TrajectoryFit& fits) {
  Groups groups;
  for (const GroupRadius& radius : radii) groups.insert(radius.group);
  for (const NamedLayer& layer : layers_of(fits)) groups.insert(layer.group);
  return groups;
}

// The key of --radius for a group (presets.h).
std::string key_of(const GroupRadius& radius, const Groups& all) {
  if (radius.group == "embedding" && all.contains("head")) return "untied_embedding";
  if (radius.group == "scalar") return "vector";
  return radius.group;
}

// "hidden=0.01,embedding=1": the value of each group.
std::string radius_text(std::span<const GroupRadius> radii, const Groups& all,
                        const std::function<double(const GroupRadius&)>& value) {
  std::map<std::string, double> values;
  for (const GroupRadius& radius : radii) values.emplace(key_of(radius, all), value(radius));
  std::string text;
  for (const auto& [key, number] : values) text += join(text.empty() ? "" : ",", key, "=", short_text(number));
  return text;
}

// ---- the entries of --radius that stay ----

bool names(const RadiusEntry& entry, const NamedLayer& layer) {
  return entry.names_layers() && glob_match(entry.key, layer.name);
}

// The groups that a preset's number moves.
Groups groups_of_number(const std::string& key, const Groups& all) {
  if (key == "factor") return {"hidden", "conv"};
  if (key == "vector") return {"vector", "scalar"};
  if (key == "untied_embedding") return {"embedding"};
  if (key == "embedding" && all.contains("head")) return {"head"};
  return {key};
}

// Those of `run` that say nothing about the groups in `tuned`. One for all roles, or for layers by name, of which some
// are tuned, becomes one for each of the others.
class KeptEntries {
 public:
  KeptEntries(const TrainConfig& run, Groups tuned, Groups all, const TrajectoryFit& fits)
      : given_(radius_entries(run.radius)), layers_(layers_of(fits)), tuned_(std::move(tuned)), all_(std::move(all)) {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const RadiusEntry& entry = given_[i];
      if (entry.names_layers()) {
        keep_named(i);
      } else if (entry.is_number_of_preset()) {
        if (moves_others(entry.key)) keep(entry.key, entry.value);
      } else if (entry.key == "all") {
        keep_for_others(entry.value);
      } else if (!tuned_.contains(entry.key)) {
        keep(entry.key, entry.value);
      }
    }
  }

  const std::vector<RadiusEntry>& entries() const { return kept_; }

  bool cover(const NamedLayer& layer) const {
    return std::ranges::any_of(
        kept_, [&](const RadiusEntry& entry) { return entry.key == layer.group || names(entry, layer); });
  }

  std::string text() const {
    std::string text;
    for (const auto& [key, value] : kept_) text += join(text.empty() ? "" : ",", key, "=", value);
    return text;
  }

 private:
  void keep(const std::string& key, const std::string& value) {
    if (std::ranges::count(kept_, key, &RadiusEntry::key) == 0) kept_.push_back({key, value});
  }

  bool is_tuned(const NamedLayer& layer) const { return tuned_.contains(layer.group); }

  // The first entry that names a layer decides.
  void keep_named(std::size_t place) {
    const RadiusEntry& entry = given_[place];
    std::vector<NamedLayer> mine = layers_;
    std::erase_if(mine, [&](const NamedLayer& layer) {
      return !names(entry, layer) || std::any_of(given_.begin(), given_.begin() + static_cast<std::ptrdiff_t>(place),
                                                 [&](const RadiusEntry& earlier) { return names(earlier, layer); });
    });
    if (std::ranges::none_of(mine, [&](const NamedLayer& layer) { return is_tuned(layer); })) {
      return keep(entry.key, entry.value);
    }
    for (const NamedLayer& layer : mine) {
      if (!is_tuned(layer)) keep(layer.name, entry.value);
    }
  }

  // Names decide before roles.
  void keep_for_others(const std::string& value) {
    for (const NamedLayer& layer : layers_) {
      const bool named = std::ranges::any_of(given_, [&](const RadiusEntry& entry) { return names(entry, layer); });
      if (!named && !is_tuned(layer)) keep(layer.group, value);
    }
  }

  bool moves_others(const std::string& key) const {
    if (key == "gamma" || key == "conv_gamma" || key == "adamw") return true;  // no radii
    if (key == "all" || key == "L0" || key == "L1") return false;
    const Groups groups = groups_of_number(key, all_);
    const auto tuned = [&](const std::string& group) { return tuned_.contains(group); };
    if (std::ranges::none_of(groups, tuned)) return true;
    return key == "factor" &&
           std::ranges::any_of(groups, [&](const std::string& group) { return all_.contains(group) && !tuned(group); });
  }

  std::vector<RadiusEntry> given_;
  std::vector<NamedLayer> layers_;
  Groups tuned_, all_;
  std::vector<RadiusEntry> kept_;
};

// ---- AdamW ----

// Leaves out what only AdamW takes and says so; nothing when there is nothing.
std::string leave_out_adamw(TrainConfig& config) {
  const TrainConfig standard;
  std::string flags;
  const auto leave_out = [&](const char* flag, auto TrainConfig::*member, bool given) {
    if (given) flags += join(flags.empty() ? "" : ", ", flag, " ", config.*member);
    config.*member = standard.*member;
  };
  leave_out("--lr", &TrainConfig::lr, config.lr > 0);
  leave_out("--radius", &TrainConfig::radius, !config.radius.empty());
  leave_out("--clip", &TrainConfig::clip, config.clip != standard.clip);
  leave_out("--weight-decay", &TrainConfig::weight_decay, config.weight_decay >= 0);
  leave_out("--decay", &TrainConfig::decay, !config.decay.empty());
  return flags.empty() ? flags : join("left out: ", flags, " of AdamW; preset unscion moves much farther in a step");
}

// "head.weight=smooth(0,0.03),...": the constants of each layer, and "L0=...,L1=..." for layers that have none, unless
// what is kept covers them.
std::string constants_text(const TrajectoryFit& fits, const KeptEntries& kept) {
  std::string text;
  Groups fitted;
  double l0 = 0, l1 = 0;
  for (const LayerFit& layer : deciding_fits(fits)) {
    if (layer.fit.l0 + layer.fit.l1 == 0) continue;  // its gradient never changed
    const std::string constants = join(short_text(layer.fit.l0), ",", short_text(layer.fit.l1));
    text += join(text.empty() ? "" : ",", layer.layer, "=smooth(", constants, ")");
    l0 = std::max(l0, layer.fit.l0);
    l1 = std::max(l1, layer.fit.l1);
    fitted.insert(layer.layer);
  }
  const bool all = std::ranges::all_of(
      layers_of(fits), [&](const NamedLayer& layer) { return fitted.contains(layer.name) || kept.cover(layer); });
  return all ? text : join(text, ",L0=", short_text(l0), ",L1=", short_text(l1));
}

// The groups that get a radius, or under deterministic_gluon constants. Muon has one number for its matrices, and no
// radii for other layers.
Groups tuned_groups(const TrainConfig& run, std::span<const GroupRadius> radii) {
  const Groups groups = groups_of(radii, {});
  if (!presets::is_muon(run.preset)) return groups;
  GLUON_CHECK(groups.contains("hidden") || groups.contains("conv"),
              "tune: no radius for hidden layers or convolutions, ", "and preset ", run.preset,
              " moves no others by radii");
  return {"hidden", "conv"};
}

double unscion_default(const std::string& group) {
  const presets::UnscionOptions defaults;
  if (group == "hidden") return defaults.hidden;
  if (group == "conv") return defaults.conv;
  if (group == "embedding") return defaults.embedding;
  throw InputError(join("tune: expected hidden layers, convolutions or an embedding, got group ", group));
}

}  // namespace

TunedConfig tuned_config(const TrainConfig& run, std::span<const GroupRadius> radii, const TrajectoryFit& fits) {
  GLUON_CHECK(!radii.empty(), "tune: no radii");
  GLUON_CHECK(run.smoothness_geometry.empty() || run.smoothness_geometry == run.preset ||
                  (run.preset == "adamw" && run.smoothness_geometry == "unscion"),
              "tune: the run was measured in the norms of ", run.smoothness_geometry, ", its preset is ", run.preset,
              ": the radii do not apply");
  const Groups all = groups_of(radii, fits);
  const KeptEntries kept(run, tuned_groups(run, radii), all, fits);
  TunedConfig tuned{.config = run, .notes = {}};
  TrainConfig& next = tuned.config;
  next.out.clear();
  if (run.preset == "unscion" || run.preset == "sphere") {  // a relative step is the radius in the layer's norm
    next.radius = radius_text(radii, all, &GroupRadius::predicted);
  } else if (run.preset == "scion") {
    // --radius sets the radii of the balls; a step moves by gamma times those.
    const presets::ScionOptions defaults;
    std::map<std::string, double> given = parse_radii(run.radius);
    const auto factor = [&](const std::string& key, double own) { return given.count(key) ? given[key] : own; };
    const double gamma = has_group(radii, "conv") && !has_group(radii, "hidden")
                             ? factor("conv_gamma", defaults.conv_gamma)
                             : factor("gamma", defaults.gamma);
    next.radius = radius_text(radii, all, [&](const GroupRadius& radius) { return radius.predicted / gamma; });
  } else if (presets::is_muon(run.preset)) {
    for (const GroupRadius& radius : radii) {
      if (radius.group == "hidden" || radius.group == "conv") next.radius = "hidden=" + short_text(radius.predicted);
    }
  } else if (run.preset == "deterministic_gluon") {
    next.radius = constants_text(fits, kept);
  } else if (run.preset == "sgd") {  // its number is t / |g|*
    const auto rate = [](const GroupRadius& radius) { return radius.predicted / radius.gradient; };
    next.radius = "all=" + short_text(rate(std::ranges::min(radii, {}, rate)));
  } else if (run.preset == "adamw") {
    const double scale = unscion_default(radii.front().group) / radii.front().predicted;
    if (const std::string note = leave_out_adamw(next); !note.empty()) tuned.notes.push_back(note);
    next.preset = "unscion";
    next.radius = radius_text(radii, all, [&](const GroupRadius& radius) { return scale * radius.predicted; });
  } else {  // one radius for all groups must suit the stiffest
    next.radius = "all=" + short_text(std::ranges::min(radii, {}, &GroupRadius::predicted).predicted);
  }
  if (run.preset != "adamw" && !kept.entries().empty()) {
    next.radius += join(next.radius.empty() ? "" : ",", kept.text());
    tuned.notes.push_back(join("kept from the run: --radius ", kept.text()));
  }
  return tuned;
}

std::string tuned_toml(const TrainConfig& config) { return join(kMark, "\n", config_toml(config)); }

void check_tuned_path(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  GLUON_CHECK(!RunDirectory::is_name(name), "tune: --out must not be the ", name, " of a run, got ", path.string());
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return;
  bool own = false;
  try {  // of what it wrote, nothing was changed since
    TrainConfig config;
    own = std::filesystem::is_regular_file(path, ignored);
    if (own) read_config_toml(path, config);
    own = own && tuned_toml(config) == read_text(path, "tune");
  } catch (const InputError&) {
    own = false;
  }
  GLUON_CHECK(own, "tune: ", path.string(), " exists and is not a config that gluon tune wrote, with the first line '",
              kMark, "'; move it away or choose another --out");
}

}  // namespace gluon::lab
