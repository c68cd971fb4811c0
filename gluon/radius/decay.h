// Decay: how the weights shrink in a step, in proportion to its radius t.
//
//   name                    the step, U what the layer moves along (downhill)
//   W                       X <- (1 - W t) X + t U                            decoupled (Loshchilov and Hutter)
//   decoupled(W[,SCHEDULE]) the same with W s_k for W
//   cautious(W[,SCHEDULE])  entries with U X > 0 keep their value, X + t U    Chen et al., arXiv 2510.12402
//
// Cautious decay never works against the step: it shrinks an entry where U pulls it towards 0, or is 0. The paper
// writes X - t u with u = -U and decays where u X >= 0. In the flow: radius -> update; X is that before the step.
//
// The schedule s_k multiplies W, and t follows the radius's own schedule and multipliers as everywhere: both together
// weaken the decay, as in nanochat. A decay that does not follow t's schedule is left out, because lr of torch's groups
// is schedule and scale of t in one number, which cannot be taken apart.

#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gluon/radius/schedule.h"

namespace gluon {

class Decay {
 public:
  Decay() = default;     // none
  Decay(double weight);  // NOLINT(google-explicit-constructor): {.decay = 0.1} reads as it should

  /// By name. Throws InputError that lists the names.
  template <std::convertible_to<std::string_view> Text>
  Decay(const Text& name) : Decay(parse(name)) {}  // NOLINT(google-explicit-constructor)

  /// Throw InputError unless the weight is finite and >= 0.
  static Decay decoupled(double weight, std::optional<Schedule> schedule = {});
  static Decay cautious(double weight, std::optional<Schedule> schedule = {});

  bool is_none() const { return weight_ == 0; }
  bool is_cautious() const { return cautious_; }

  /// W, and W s_k.
  double weight() const { return weight_; }
  double weight(int64_t step) const;

  /// W where all entries shrink by it in all steps.
  std::optional<double> constant() const;

  /// Shrinks the entries of x that decay by the factor `keep`, 1 - W s_k t with the sizes []. `heading` is U, shaped as
  /// x; it may be undefined unless the decay is cautious.
  void shrink(at::Tensor x, const at::Tensor& heading, const at::Tensor& keep) const;

  /// The name that the constructor turns back into this object: a number where that says it all.
  std::string name() const;

 private:
  Decay(bool cautious, double weight, std::optional<Schedule> schedule);
  static Decay parse(std::string_view name);

  bool cautious_ = false;
  double weight_ = 0;
  std::optional<Schedule> schedule_{};
};

}  // namespace gluon
