// The quintic iteration of lmo/orthogonalize/quintic_iteration.h in float16: what the GPU's kernels compute, step by
// step, and what tests emulate without a GPU.
//
//   direct   R = X X^T,  Z = a I + b R + c R R,  X <- Z X          each step
//   Gram     Z = a I + b R + c R R,  Q <- Q Z,  R <- Z (Z R)       up to two steps,
//            X <- Q X,  R = X X^T                                  then a restart
//
// Rounding lets R drift away from X X^T between restarts. Where it lifts a singular value above the range of the rows,
// the next rows multiply it by large factors: with two steps before the first restart, 5 of 1008 momenta of real training
// ended with singular values of up to 1301. So the Gram form restarts after the first step, which magnifies most, and the
// rows between the first and the last expect a range that is larger by kGramSafety: the same cost, and no singular value
// above 1.14 (docs/reliability.md).

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "gluon/core/lmo_form.h"

namespace gluon::kernels {

/// By flops the Gram form wins from aspect 1 on; products of one triangle run at about 0.85 of the rate of full ones,
/// and there are more of them. The CPU's own threshold is in lmo/orthogonalize/quintic_iteration.h.
inline constexpr double kTensorCoreGramAspect = 1.5;

/// Rounding in the Gram form moves the polar factor by up to 0.005, against 0.001 to 0.003 in the direct form: less
/// than the error of up to five steps, too much for more.
inline constexpr int kMaxGramSteps = 5;

inline constexpr double kGramSafety = 1.02;

struct HalfStep {
  Quintic row;
  double shift = 0;     // R is kept as R + shift I before this step
  bool restart = true;  // X is multiplied after this step, and R computed anew
};

/// The steps for m x n matrices. With shift = b / (2 c) the polynomial c (R + shift I)^2 + (a - c shift^2) I is a
/// product without an addend; it is 0, and there is an addend, where R's scale is not known yet or R is needed again.
inline std::vector<HalfStep> half_plan(std::span<const Quintic> coefficients, int64_t m, int64_t n) {
  const auto [small, large] = std::minmax(m, n);
  const auto count = static_cast<int>(coefficients.size());
  const bool gram =
      count <= kMaxGramSteps && static_cast<double>(large) >= kTensorCoreGramAspect * static_cast<double>(small);
  std::vector<HalfStep> steps;
  for (int i = 0; i < count; ++i) {
    HalfStep step{coefficients[static_cast<std::size_t>(i)]};
    auto& [a, b, c] = step.row;
    const bool last = i + 1 == count;
    if (gram && i > 0 && !last) {
      step.restart = i % 2 == 0;
      a /= kGramSafety;
      b /= std::pow(kGramSafety, 3);
      c /= std::pow(kGramSafety, 5);
    }
    if (i > 0 && step.restart && std::abs(b) <= 4 * std::abs(c)) step.shift = b / (2 * c);
    steps.push_back(step);
  }
  return steps;
}

}  // namespace gluon::kernels
