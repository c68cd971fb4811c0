#include "lab/train/radius_flag.h"

#include <algorithm>
#include <functional>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon::lab {
namespace {

// The place of the next comma outside of parentheses.
std::size_t end_of_entry(const std::string& text, std::size_t start) {
  int depth = 0;
  std::size_t end = start;
  for (; end < text.size() && (text[end] != ',' || depth > 0); ++end) {
    if (text[end] == '(') ++depth;
    if (text[end] == ')') --depth;
  }
  return end;
}

Role role_of(const RadiusEntry& entry) {
  try {
    return parse_role(entry.key);
  } catch (const InputError&) {
    throw InputError(join("--radius ", entry.key, ": expected a number, got '", entry.value,
                          "'; rules are for all, hidden, embedding, head, conv, vector, scalar and for layers by name, "
                          "such as *.weight"));
  }
}

Radius radius_of(const RadiusEntry& entry, const std::string& preset) {
  const bool is_number = entry.value.find('(') == std::string::npos;
  if (preset == "sgd" && is_number) return steepest_radius(parse_number(entry.value, "--radius " + entry.key));
  return make_radius(entry.value);
}

// Copies of the rules that can match the entry's layers, for these layers alone and with the entry's radius.
std::vector<Rule> rules_for(const RadiusEntry& entry, const Radius& radius, std::vector<Rule> rules) {
  for (Rule& rule : rules) rule.radius = radius;
  if (entry.key == "all") return rules;
  if (entry.names_layers()) {
    for (Rule& rule : rules) rule.pattern = entry.key;
    return rules;
  }
  const Role role = role_of(entry);
  std::erase_if(rules, [&](const Rule& rule) { return rule.role.value_or(role) != role; });
  for (Rule& rule : rules) rule.role = role;
  return rules;
}

}  // namespace

bool RadiusEntry::names_layers() const { return key.find_first_of(".*?") != std::string::npos; }

bool RadiusEntry::is_number_of_preset() const { return !names_layers() && value.find('(') == std::string::npos; }

std::vector<RadiusEntry> radius_entries(const std::string& text) {
  std::vector<RadiusEntry> entries;
  if (text.empty() || text == kAutoRadius) return entries;
  for (std::size_t start = 0, end = 0; end < text.size(); start = end + 1) {  // a comma at the end begins an entry
    end = end_of_entry(text, start);
    const std::string entry = text.substr(start, end - start);
    const auto equals = entry.find('=');
    GLUON_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < entry.size(),
                "--radius: expected group=radius,..., got '", text, "'");
    entries.push_back({entry.substr(0, equals), entry.substr(equals + 1)});
    const std::string& key = entries.back().key;
    GLUON_CHECK(std::ranges::count(entries, key, &RadiusEntry::key) == 1, "--radius: group '", key, "' is given twice");
  }
  return entries;
}

std::map<std::string, double> parse_radii(const std::string& text) {
  std::map<std::string, double> radii;
  for (const RadiusEntry& entry : radius_entries(text)) {
    if (entry.is_number_of_preset()) radii[entry.key] = parse_number(entry.value, "--radius");
  }
  return radii;
}

Geometry with_radius_rules(const Geometry& geometry, const std::string& preset, const std::string& text) {
  std::vector<RadiusEntry> entries = radius_entries(text);
  std::erase_if(entries, &RadiusEntry::is_number_of_preset);
  if (entries.empty()) return geometry;
  GLUON_CHECK(preset != "scion", "--radius ", entries[0].key, "=", entries[0].value,
              ": the radii of preset scion are those of its balls; rules and layers by name need another preset");
  std::stable_partition(entries.begin(), entries.end(), std::mem_fn(&RadiusEntry::names_layers));
  std::vector<Rule> rules;
  for (const RadiusEntry& entry : entries) {
    const std::vector<Rule> own = rules_for(entry, radius_of(entry, preset), geometry.rules());
    rules.insert(rules.end(), own.begin(), own.end());
  }
  rules.insert(rules.end(), geometry.rules().begin(), geometry.rules().end());
  return Geometry(std::move(rules), geometry.momentum());
}

}  // namespace gluon::lab
