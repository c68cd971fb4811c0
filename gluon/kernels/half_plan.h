// How the GPU's kernels do the polar iteration in float16, and what tests emulate without a GPU.
//
// A step is direct:  R = X X^T,  Z from R by squaring,  X <- Z X.  It stores R + shift I instead of R where it can, so
// that its first square needs no addend.
//
// On long matrices X <- Z X and the next R cost more than the whole polynomial, so the last step may begin from an
// updated R instead:  R <- Z R Z,  and with its own Z',  X <- Z' Z X.  Rounding makes an updated R drift away from
// X X^T, by Z(0)^2 times the rounding of R where that matters, near singular values of 0. The last step lifts these
// little and nothing lifts again what it returns; with updates before it, singular values of 6 and more came out.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gluon/core/lmo_form.h"

namespace gluon::kernels {

/// Diagonals below 4 are rounded by at most 1e-3, which moves the polar factor by less than the rounding of X.
inline constexpr double kMaxStoredShift = 3;

/// Above it three symmetric products cost less than X <- Z X and R = X X^T.
inline constexpr double kUpdateAspect = 1.25;

/// The most Z(0) of a step from which R is updated.
inline constexpr double kMaxUpdateGain = 20;

/// Whether Hopper's kernels update R of the last step.
inline bool updates_last(std::span<const PolarStep> steps, int64_t rows, int64_t columns) {
  const auto shorter = static_cast<double>(std::min(rows, columns)),
             longer = static_cast<double>(std::max(rows, columns));
  return steps.size() > 1 && longer > kUpdateAspect * shorter &&
         std::abs(steps[steps.size() - 2].multiplier(0)) <= kMaxUpdateGain;
}

/// The multiple of I that is stored with R of step `index`. None in the first step, where R's scale is not known before
/// it is there, and none where R is updated afterwards, which would amplify the rounding of a larger diagonal.
inline double stored_shift(std::span<const PolarStep> steps, std::size_t index, bool updates_last) {
  const bool plain = index == 0 || (updates_last && index + 2 == steps.size());
  const double shift = steps[index].shift;
  return plain || std::abs(shift) > kMaxStoredShift ? 0 : shift;
}

}  // namespace gluon::kernels
