// OptimizerOptions: what an Optimizer is told beside its layers and their geometry.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gluon/core/check.h"
#include "gluon/distributed/collective.h"
#include "gluon/distributed/gradient_reducer.h"
#include "gluon/lmo/norm.h"
#include "gluon/momentum/momentum.h"
#include "gluon/radius/schedule.h"
#include "gluon/update/adamw.h"

namespace gluon {

/// What to do when a gradient holds NaN or Inf: throw before anything has moved, or leave the step out.
enum class NonFinite { kError, kSkip };

/// What kError throws.
class NonFiniteGradient : public InputError {
 public:
  using InputError::InputError;
};

struct OptimizerOptions {
  std::optional<Momentum> momentum;                    // the geometry's own when not given
  Schedule schedule;                                   // multiplies every radius
  std::string orthogonalizer{kDefaultOrthogonalizer};  // inside "spectral" norms that name none
  NonFinite non_finite = NonFinite::kError;
  int64_t scratch_bytes = int64_t{1} << 30;  // for LMO inputs, directions and products: more goes in chunks
  AdamWOptions adamw;
  CollectivePtr collective;                      // the ranks that share the work; one alone when empty
  ReductionOptions reduction;                    // of their gradients
  std::function<void(const std::string&)> warn;  // gets one sentence; std::clog when empty

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

}  // namespace gluon
