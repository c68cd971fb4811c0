// OptimizerOptions: what an Optimizer needs to know beside its layers and their geometry.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gluon/core/check.h"
#include "gluon/distributed/collective.h"
#include "gluon/lmo/norm.h"
#include "gluon/momentum/momentum.h"
#include "gluon/radius/schedule.h"

namespace gluon {

/// For a gradient that holds NaN or Inf: throw before anything has moved, or skip the step.
enum class NonFinite { kError, kSkip };

/// What kError throws.
class NonFiniteGradient : public InputError {
 public:
  using InputError::InputError;
};

/// For the layers a geometry leaves to AdamW; the learning rate is the rule's radius.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double clip = 0;  // largest norm of these layers' gradients together; larger ones are scaled down. 0: no limit

  /// Throws InputError unless 0 <= beta < 1, eps > 0 and clip >= 0.
  void validate() const;
};

struct OptimizerOptions {
  std::optional<Momentum> momentum{};                  // the geometry's own when not given
  Schedule schedule{};                                 // multiplies every radius
  std::string orthogonalizer{kDefaultOrthogonalizer};  // inside "spectral" norms that name none
  NonFinite non_finite = NonFinite::kError;
  int64_t scratch_bytes = int64_t{1} << 30;  // limit on memory for LMO inputs, directions and products
  AdamWOptions adamw{};
  CollectivePtr collective{};                      // the ranks that share the work; empty: this process alone
  ReductionOptions reduction{};                    // of the ranks' gradients
  std::function<void(const std::string&)> warn{};  // receives one sentence per call; empty: std::clog

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

}  // namespace gluon
