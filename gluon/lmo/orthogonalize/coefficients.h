// Coefficients of the odd quintics that drive singular values to 1:  p(s) = a s + b s^3 + c s^5.
//
// Jordan's fixed row climbs fast from small s but never settles: five steps end in 0.68..1.13 on [0.05, 1]. Polar
// Express rows (Amsel et al., 2025) are optimal one after another: step t takes the quintic with the smallest
//
//   max |1 - p(s)|  over  s in [l_t, u_t],      l_{t+1} = p(l_t),   u_{t+1} = 2 - l_{t+1}
//
// which a Remez exchange finds. Two guards against rounding: the interval never begins below `cushion` u_t
// (a row for a wider one would be steep, and errors would grow with it), and every row but the last is that
// of p(s / safety), so that a singular value slightly above u_t stays where p contracts.

#pragma once

#include <vector>

#include "gluon/core/lmo_form.h"

namespace gluon {

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

}  // namespace gluon
