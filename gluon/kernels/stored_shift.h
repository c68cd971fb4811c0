// How the GPU's kernels store R in float16, and what tests emulate without a GPU.
//
// Every step is direct:  R = X X^T,  Z from R by squaring,  X <- Z X.  R is recomputed from X, never updated: rounding
// would make an updated R drift away from X X^T, and a step that lifts small singular values 11 times would lift the
// difference, too. A step stores R + shift I instead of R, so that its first square needs no addend.

#pragma once

#include <cmath>

#include "gluon/core/lmo_form.h"

namespace gluon::kernels {

/// Diagonals below 4 are rounded by at most 1e-3, which moves the polar factor by less than the rounding of X.
inline constexpr double kMaxStoredShift = 3;

/// The multiple of I that is stored with R. In the first step R's scale is not known before it is there, so nothing is.
inline double stored_shift(const PolarStep& step, bool first) {
  return first || std::abs(step.shift) > kMaxStoredShift ? 0 : step.shift;
}

}  // namespace gluon::kernels
