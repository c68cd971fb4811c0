// The odd polynomials that drive singular values to 1. Quintics,  p(s) = a s + b s^3 + c s^5:
//
// Jordan's fixed row climbs fast from small s but never settles: five steps end in 0.68..1.13 on [0.05, 1]. Polar
// Express rows (Amsel et al., 2025) are optimal one after another: step t takes the quintic with the smallest
//
//   max |1 - p(s)|  over  s in [l_t, u_t],      l_{t+1} = p(l_t),   u_{t+1} = 2 - l_{t+1}
//
// which a Remez exchange finds. Two guards against rounding: the interval never begins below `cushion` u_t
// (a row for a wider one would be steep, and errors would grow with it), and every row but the last is that
// of p(s / safety), so that a singular value slightly above u_t stays where p contracts.
//
// And polynomials of higher degree made of squares (core/lmo_form.h). On a square matrix a quintic takes 2 full products'
// worth of flops, degree 9 takes 2.5 and degree 17 takes 3, and each lifts small values further for its flops. Three steps
// of degrees 17, 17 and 9 are closer to 1 than five quintics, everywhere on the same interval, at 0.85 of their flops.

#pragma once

#include <span>
#include <vector>

#include "gluon/core/lmo_form.h"

namespace gluon {

/// s -> a s + b s^3 + c s^5.
struct Quintic {
  double a = 0, b = 0, c = 0;

  bool operator==(const Quintic&) const = default;
};

/// The same steps with Z = c (R + b / (2 c) I)^2 + (a - b^2 / (4 c)) I. Throws InputError where c is 0.
std::vector<PolarStep> quintic_steps(std::span<const Quintic> rows);

/// The row (3.4445, -4.7750, 2.0315) of public Muon, `steps` times. Throws InputError unless steps is in 1..100.
std::vector<Quintic> jordan_coefficients(int steps);

struct PolarExpressOptions {
  int steps = 5;        // 1..100; with lower = 1e-3, 5 end in 0.84..1.12 on [lower, 1], 6 in 0.994..1.002
  double lower = 1e-3;  // smallest singular value aimed at, after normalisation
  double safety = 1.01;
  double cushion = 0.02407327424182761;

  /// Throws InputError that names the option, its value and what is allowed.
  void validate() const;
};

/// The rows for `options`. The first one expects singular values in [0, 1 / safety].
std::vector<Quintic> polar_express_coefficients(const PolarExpressOptions& options);

/// Three steps with so many squares in all, for singular values in [0, 1 / kSquaresSafety]. 8: degrees 17, 17 and 9, which
/// end in 0.868..1.114 on [1e-3, 1]. 9: degree 17 each, 0.902..1.081 on [8e-4, 1]. Throws InputError for other numbers.
std::vector<PolarStep> polar_squares_steps(int squares);
inline constexpr double kSquaresSafety = 1.01;

}  // namespace gluon
