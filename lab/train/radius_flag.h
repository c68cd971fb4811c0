// --radius: how far the layers of a preset move.
//
//   hidden=0.018,embedding=1.08                 numbers for the preset's keys (gluon/geometry/presets.h)
//   hidden=power(0.02),head=smooth(0,0.03)      radius rules (gluon/radius/radius.h) by role; all=... for every role
//   head.weight=0.5,layers.*=smooth(0,3)        numbers or rules by the names of layers, with * and ?
//   auto                                        what the preset says when nothing is given, for presets with a law
//
// Preset sgd's numbers are learning rates, also by the names of layers: 0.5 is steepest(0.5).
//
// A key with '.', '*' or '?' names layers. They come before roles, and of several that name a layer the first decides.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "gluon/geometry/geometry.h"

namespace gluon::lab {

inline constexpr const char* kAutoRadius = "auto";

struct RadiusEntry {
  std::string key;
  std::string value;

  bool names_layers() const;
  bool is_number_of_preset() const;  // else a rule, or for layers by name
};

/// None for "auto". Throws InputError unless `text` is key=value,... with different keys.
std::vector<RadiusEntry> radius_entries(const std::string& text);

/// The numbers for the preset's keys. Throws InputError.
std::map<std::string, double> parse_radii(const std::string& text);

/// `geometry`, the preset called `preset`, with the other entries of `text`: its norms and decays remain. Throws
/// InputError on unknown keys and rules, and on Scion, whose radii are those of its balls.
Geometry with_radius_rules(const Geometry& geometry, const std::string& preset, const std::string& text);

}  // namespace gluon::lab
