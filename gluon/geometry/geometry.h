// Geometry: which norm measures which layer, and how far each layer moves.
//
// An ordered list of rules; the first rule that matches a layer decides. A layer that no rule matches is an
// error: nothing is ever trained by accident. routing_report() shows people what was decided.
//
//   Geometry({{.pattern = "blocks.*.attn.qkv.weight", .norm = "scaled(sqrt(n/m),spectral)", .radius = 0.02,
//              .split = "qkv"},
//             {.role = Role::kHidden, .norm = "scaled(sqrt(n/m),spectral)", .radius = 0.02},
//             {.role = Role::kEmbedding, .norm = "scaled(n,max_entry)", .radius = 1.0},
//             {.norm = "adamw", .radius = 3e-4}});
//
// Presets (geometry/presets.h) are functions that return a Geometry.

#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/layer.h"
#include "gluon/lmo/norm.h"
#include "gluon/momentum/momentum.h"
#include "gluon/normalize/normalize.h"
#include "gluon/radius/decay.h"
#include "gluon/radius/radius.h"

namespace gluon {

/// A norm by name, resolved for the shape of each layer, or a norm object of the user's own.
class NormChoice {
 public:
  NormChoice(std::string name) : name_(std::move(name)) {}  // NOLINT(google-explicit-constructor)
  NormChoice(const char* name) : name_(name) {}             // NOLINT(google-explicit-constructor)
  template <std::derived_from<Norm> AnyNorm>
  NormChoice(std::shared_ptr<AnyNorm> norm) : norm_(std::move(norm)) {  // NOLINT(google-explicit-constructor)
    GLUON_CHECK(norm_ != nullptr, "Rule: expected a norm, got none");
    name_ = norm_->name();
  }

  /// "adamw" is no norm: such layers are left to AdamW, whose learning rate is the rule's radius.
  bool is_adamw() const { return name_ == "adamw"; }

  /// Whether its LMO orthogonalizes: the norm is spectral, perhaps scaled.
  bool is_spectral() const { return name_.find("spectral") != std::string::npos; }

  /// The name as it was given, width factors not yet evaluated.
  const std::string& name() const { return name_; }

  /// The norm for matrices of `shape`; see make_norm().
  NormPtr resolve(const MatrixShape& shape, std::string_view orthogonalizer) const;

 private:
  std::string name_;
  NormPtr norm_;
};

/// The sphere |X|_F = R that the matrices of a layer stay on (gluon/update/sphere_step.h). Its own R, "auto", is the
/// length of the LMO of the layer's norm, Norm::lmo_length().
class Sphere {
 public:
  Sphere() = default;
  Sphere(double radius);  // NOLINT(google-explicit-constructor): {.sphere = 2.0} reads as it should

  /// R for m x n matrices in this norm.
  double radius(const Norm& norm, const MatrixShape& shape) const;

  const std::optional<double>& number() const { return radius_; }  // none for "auto"

  /// "auto" or a number; make_sphere() turns it back into this object.
  std::string name() const;

 private:
  std::optional<double> radius_{};
};

/// Inverse of Sphere::name(). Throws InputError.
Sphere make_sphere(std::string_view name);

/// What a layer must be to match, and what happens to it then.
struct Rule {
  std::string pattern = "*";       // glob on the layer's name: * any characters, ? one
  std::optional<Role> role{};      // only layers with this role
  std::optional<int64_t> rank{};   // only parameters with this many dimensions
  std::optional<Role> beside{};    // only in models that also have a layer with this role
  std::optional<Role> without{};   // only in models that have no layer with this role
  std::optional<int64_t> group{};  // only layers of this group

  NormChoice norm = "spectral";
  Normalize normalize{};  // of the LMO's direction: "normuon(0.95)"
  Radius radius = 0.02;
  std::string split{};  // see split_blocks()
  Decay decay{};        // a number w: X <- (1 - w t) X + t lmo; or "cautious(0.01)", perhaps with a schedule
  // |X| <= ball, to the LMO's accuracy (Scion): X <- (1 - t/ball) X + t lmo, t <= ball
  std::optional<double> ball{};
  // |X|_F = R, with the radius as relative step: X <- R Norm(Norm(X) + t Norm(lmo))
  std::optional<Sphere> sphere{};
};

class Geometry {
 public:
  /// `momentum` is what the optimizer uses when its options say nothing else. Throws InputError when there are
  /// no rules, a norm cannot be made, a ball is not positive, more than one of decay, ball and sphere are given, or a
  /// direction is to be normalised inside a ball.
  explicit Geometry(std::vector<Rule> rules, Momentum momentum = Momentum::ema(0.9));

  /// This geometry with `rule` before all others: Geometry(...).with_first({.pattern = "*.qkv.weight", ...}).
  Geometry with_first(Rule rule) const;

  const std::vector<Rule>& rules() const { return rules_; }
  const Momentum& momentum() const { return momentum_; }

  /// The index of the rule for each layer. Throws InputError naming the first layer without one, or the first rule
  /// whose pattern matches no layer's name.
  std::vector<std::size_t> assign(std::span<const Layer> layers) const;

  /// One line per group of layers with the same rule: pattern, norm, radius, layers, parameters.
  std::string routing_report(std::span<const Layer> layers) const;

 private:
  std::vector<Rule> rules_;
  Momentum momentum_;
};

/// Whether `name` matches the glob `pattern` as a whole.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace gluon
