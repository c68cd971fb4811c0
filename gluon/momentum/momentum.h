// Momentum: how the gradients of the steps so far become the LMO's input.
//
//   M_k = beta_k M_{k-1} + (1 - beta_k) g_k          beta weighs the OLD momentum, M_{-1} = 0
//
//   name            beta_k                      LMO's input
//   none            0                           g_k
//   ema(beta)       beta                        M_k
//   nesterov(beta)  beta                        beta M_k + (1 - beta) g_k, as in the public Muon
//   theorem3        1 - (k+1)^(-1/2)            M_k; beta_0 = 0 makes M_0 = g_0 (paper: theorem 3)
//
// Gradients are read only. The buffer of a batch is stacked, (b, m, n); "none" keeps no buffer.

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>

namespace gluon {

class Momentum {
 public:
  static Momentum none();
  static Momentum ema(double beta);
  static Momentum nesterov(double beta);
  static Momentum theorem3();

  /// A beta alone: ema(beta), or nesterov(beta) over a geometry whose own momentum is nesterov. Throws InputError
  /// unless 0 <= beta < 1, like the functions above.
  Momentum(double beta);  // NOLINT(google-explicit-constructor): {.momentum = 0.9} reads as it should

  /// This momentum in a geometry whose own is `geometry`.
  Momentum over(const Momentum& geometry) const;

  /// Weight of the old momentum in step k = 0, 1, ...
  double beta(int64_t step) const;

  /// beta where all steps share it (ema, nesterov).
  std::optional<double> constant_beta() const;

  /// This momentum with another beta. Throws InputError when it has no constant one, or unless 0 <= beta < 1.
  Momentum with_beta(double beta) const;

  bool keeps_buffer() const { return kind_ != Kind::kNone; }

  /// Whether the LMO's input is the buffer itself.
  bool input_is_buffer() const { return kind_ != Kind::kNone && kind_ != Kind::kNesterov; }

  /// Folds one gradient into its part of the buffer, in place. Shapes are equal; dtypes may differ.
  void accumulate(at::Tensor buffer, const at::Tensor& gradient, int64_t step) const;

  /// Writes the LMO's input for one gradient where it is not the buffer itself (none, nesterov).
  void write_input(at::Tensor input, const at::Tensor& buffer, const at::Tensor& gradient, int64_t step) const;

  /// The name that make_momentum() turns back into this object.
  std::string name() const;

 private:
  enum class Kind { kNone, kBeta, kEma, kNesterov, kTheorem3 };
  Momentum(Kind kind, double beta);

  Kind kind_;
  double beta_;
};

/// Inverse of Momentum::name(). Throws InputError that lists the names.
Momentum make_momentum(std::string_view name);

}  // namespace gluon
