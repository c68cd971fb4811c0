// How fast the fit of many samples is: beside one pass over them, which no fit can do without.

#pragma once

#include <cstdint>

#include "gluon/fit/fit.h"

namespace gluon::benchmarks {

struct FitResult {
  double milliseconds = 0;       // of the fit, median
  double pass_milliseconds = 0;  // of the least squares sums over the same samples: the bound
  Fit fit;
};

/// Samples Lhat = (2 + 3 |g|*) times a random factor in [0.5, 1.5]. Throws InputError unless samples >= 2 and
/// repeats >= 1.
FitResult run_fit(int64_t samples, int64_t repeats);

}  // namespace gluon::benchmarks
