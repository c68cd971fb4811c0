#include "gluon/geometry/geometry.h"

#include <algorithm>
#include <cmath>
#include <iomanip>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

bool matches(const Rule& rule, const Layer& layer, std::span<const Layer> layers) {
  const auto present = [&](Role role) {
    return std::any_of(layers.begin(), layers.end(), [&](const Layer& other) { return other.role == role; });
  };
  return glob_match(rule.pattern, layer.name) && (!rule.role || *rule.role == layer.role) &&
         (!rule.rank || *rule.rank == layer.parameter.dim()) && (!rule.beside || present(*rule.beside)) &&
         (!rule.without || !present(*rule.without)) && (!rule.group || *rule.group == layer.group);
}

// What the rule selects by, as people would say it: "conv blocks.*" or "*".
std::string selector(const Rule& rule) {
  std::string text;
  if (rule.role) text += join(role_name(*rule.role), " ");
  if (rule.group) text += join("group ", *rule.group, " ");
  if (rule.rank) text += join("rank ", *rule.rank, " ");
  if (rule.pattern != "*" || text.empty()) text += rule.pattern + " ";
  if (rule.beside) text += join("beside ", role_name(*rule.beside), " ");
  if (rule.without) text += join("without ", role_name(*rule.without), " ");
  text.pop_back();
  return text;
}

// What happens to the weights beside the step; at most one of them.
std::vector<std::string> constraints(const Rule& rule) {
  std::vector<std::string> found;
  if (!rule.decay.is_none()) found.push_back((rule.decay.constant() ? "weight decay " : "decay ") + rule.decay.name());
  if (rule.ball) found.push_back("ball " + number_text(*rule.ball));
  if (rule.sphere) found.push_back("sphere " + rule.sphere->name());
  return found;
}

std::string details(const Rule& rule) {
  std::string text;
  if (!rule.split.empty()) text += join("  split ", rule.split);
  if (!rule.normalize.is_none()) text += join("  normalize ", rule.normalize.name());
  for (const std::string& constraint : constraints(rule)) text += "  " + constraint;
  if (const std::string why = rule.radius->explanation(); !why.empty()) text += "  radius " + why;
  return text;
}

void validate(const Rule& rule) {
  const std::string what = join("Geometry: rule '", selector(rule), "': ");
  GLUON_CHECK(!rule.ball || (std::isfinite(*rule.ball) && *rule.ball > 0), what, "ball must be > 0 and finite, got ",
              rule.ball.value_or(0));
  const std::vector<std::string> found = constraints(rule);
  GLUON_CHECK(found.size() <= 1, what, "a weight decay, a ball and a sphere exclude each other, got ", found[0],
              " and ", found[1]);
  GLUON_CHECK(!rule.ball || !rule.norm.is_adamw(), what, "AdamW has no norm ball");
  GLUON_CHECK(!rule.sphere || !rule.norm.is_adamw(), what, "AdamW has no sphere");
  GLUON_CHECK(rule.normalize.is_none() || !rule.norm.is_adamw(), what, "AdamW has no direction to normalize, got ",
              rule.normalize.name());
  GLUON_CHECK(rule.normalize.is_none() || !rule.ball, what, "a ball holds steps along the LMO alone, got normalize ",
              rule.normalize.name(), " and ball ", rule.ball.value_or(0));
  GLUON_CHECK(rule.split.empty() || !rule.norm.is_adamw(), what, "AdamW works on entries; it needs no split");
  if (!rule.norm.is_adamw()) (void)rule.norm.resolve({}, kDefaultOrthogonalizer);
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t i = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (i < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = i;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[i])) {
      ++p;
      ++i;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      i = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

NormPtr NormChoice::resolve(const MatrixShape& shape, std::string_view orthogonalizer) const {
  return norm_ ? norm_ : make_norm(name_, shape, orthogonalizer);
}

Sphere::Sphere(double radius) : radius_(radius) {
  GLUON_CHECK(std::isfinite(radius) && radius > 0, "Sphere: the radius must be > 0 and finite, got ", radius);
}

double Sphere::radius(const Norm& norm, const MatrixShape& shape) const {
  return radius_ ? *radius_ : norm.lmo_length(shape.rows, shape.cols);
}

std::string Sphere::name() const { return radius_ ? number_text(*radius_) : "auto"; }

Sphere make_sphere(std::string_view name) {
  if (name == "auto") return {};
  GLUON_CHECK(!name.empty() && name.find_first_not_of("+-.0123456789eE") == std::string::npos,
              "sphere: expected a number or auto, got '", name, "'");
  return parse_number(name, "sphere");
}

Geometry::Geometry(std::vector<Rule> rules, Momentum momentum) : rules_(std::move(rules)), momentum_(momentum) {
  GLUON_CHECK(!rules_.empty(), "Geometry: expected at least one rule, got none");
  for (const Rule& rule : rules_) validate(rule);
}

Geometry Geometry::with_first(Rule rule) const {
  std::vector<Rule> rules{std::move(rule)};
  rules.insert(rules.end(), rules_.begin(), rules_.end());
  return Geometry(std::move(rules), momentum_);
}

std::vector<std::size_t> Geometry::assign(std::span<const Layer> layers) const {
  for (const Rule& rule : rules_) {
    const bool matched = rule.pattern == "*" || std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
                           return glob_match(rule.pattern, layer.name);
                         });
    GLUON_CHECK(matched, "Geometry: the pattern '", rule.pattern, "' of a rule matches no layer");
  }
  std::vector<std::size_t> assignment;
  for (const Layer& layer : layers) {
    const auto rule = std::find_if(rules_.begin(), rules_.end(),
                                   [&](const Rule& candidate) { return matches(candidate, layer, layers); });
    GLUON_CHECK(rule != rules_.end(), "Geometry: no rule for layer '", layer.name, "' (role ", role_name(layer.role),
                ", shape ", layer.parameter.sizes(),
                "); add a rule that matches it, or {.norm = \"adamw\"} as the last one");
    assignment.push_back(static_cast<std::size_t>(rule - rules_.begin()));
  }
  return assignment;
}

std::string Geometry::routing_report(std::span<const Layer> layers) const {
  const std::vector<std::size_t> assignment = assign(layers);
  std::size_t selector_width = 5;
  std::size_t norm_width = 4;
  std::size_t radius_width = 6;
  for (const std::size_t index : assignment) {
    selector_width = std::max(selector_width, selector(rules_[index]).size());
    norm_width = std::max(norm_width, rules_[index].norm.name().size());
    radius_width = std::max(radius_width, rules_[index].radius->name().size());
  }
  std::ostringstream out;
  const auto line = [&](const auto& group, const auto& norm, const auto& radius, const auto& count,
                        const auto& parameters, const std::string& rest) {
    out << std::left << std::setw(static_cast<int>(selector_width)) << group << "  "
        << std::setw(static_cast<int>(norm_width)) << norm << "  " << std::setw(static_cast<int>(radius_width))
        << radius << std::right << std::setw(8) << count << std::setw(14) << parameters << rest << '\n';
  };
  line("group", "norm", "radius", "layers", "parameters", "");
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    int64_t count = 0;
    int64_t parameters = 0;
    int64_t fused = 0;
    const Rule& rule = rules_[index];
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (assignment[i] != index) continue;
      ++count;
      parameters += layers[i].parameter.numel();
      fused += rule.split.empty() && !rule.norm.is_adamw() && !usual_split(layers[i]).empty() ? 1 : 0;
    }
    std::string rest = details(rule);
    if (fused > 0) rest += join("  ", fused, " split qkv");
    if (count > 0) line(selector(rule), rule.norm.name(), rule.radius->name(), count, parameters, rest);
  }
  return out.str();
}

}  // namespace gluon
