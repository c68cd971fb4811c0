// RadiusRule: how far a layer moves in one step, measured in its own norm. Other optimizers call this the learning
// rate.
//
//   name                        t
//   0.02                        0.02
//   horizon(c,p,K)              c K^-p, in a run of K steps                presets::sphere
//   power(t)                    t (k+1)^(-3/4)                             paper: theorem 3
//   smooth(L0,L1)               |g|* / (L0 + L1 |g|*)                      paper: theorem 1
//   relative_noise(L0,L1,z)     (1-z) |g|* / (L0 + (1+z) L1 |g|*)          paper: theorem 2
//   steepest(eta)               eta |g|*                                   steepest descent
//
// With momentum, |g|* is the momentum's dual norm; the theorems are stated for the gradient itself (momentum "none").
// Steepest descent steps by eta |g|* lmo(g), which in the euclidean norm is -eta g: SGD with learning rate eta. A
// schedule (schedule.h) multiplies whatever the rule says.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gluon/core/batch_step.h"

namespace gluon {

class RadiusRule {
 public:
  virtual ~RadiusRule() = default;

  /// One radius per matrix of the batch: (c), on its device, without host synchronisation. The caller does not
  /// change what it is given.
  virtual at::Tensor radius(const BatchStep& batch) const = 0;

  /// The radius where it is always the same.
  virtual std::optional<double> constant() const { return std::nullopt; }

  /// The name that make_radius() turns back into this rule.
  virtual std::string name() const = 0;

  /// For people: the number and where it comes from, where the name does not say it.
  virtual std::string explanation() const { return {}; }
};

/// Handle to a radius rule; a plain number is a constant radius.
class Radius {
 public:
  Radius(double constant);  // NOLINT(google-explicit-constructor): {.radius = 0.02} reads as it should
  Radius(std::shared_ptr<const RadiusRule> rule);  // NOLINT(google-explicit-constructor)

  const RadiusRule& operator*() const { return *rule_; }
  const RadiusRule* operator->() const { return rule_.get(); }

 private:
  std::shared_ptr<const RadiusRule> rule_;
};

/// Each throws InputError on other constants: t, c, eta > 0; p >= 0; steps >= 1; L0, L1 >= 0 and not both 0;
/// 0 <= zeta < 1.
Radius constant_radius(double t);
Radius horizon_radius(double c, double p, int64_t steps);
Radius power_radius(double t);
Radius smooth_radius(double l0, double l1);
Radius relative_noise_radius(double l0, double l1, double zeta);
Radius steepest_radius(double eta);

/// Inverse of RadiusRule::name(). Throws InputError that lists the names.
Radius make_radius(std::string_view name);

}  // namespace gluon
