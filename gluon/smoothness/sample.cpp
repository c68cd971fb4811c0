#include "gluon/smoothness/sample.h"

#include "gluon/core/check.h"

namespace gluon {

std::string_view estimator_name(Estimator estimator) {
  switch (estimator) {
    case Estimator::kConsecutive: return "consecutive";
    case Estimator::kFull: return "full";
    case Estimator::kSameBatch: return "same_batch";
    case Estimator::kUnknown: break;
  }
  return "unknown";
}

Estimator parse_estimator(std::string_view name) {
  for (const Estimator estimator :
       {Estimator::kConsecutive, Estimator::kFull, Estimator::kSameBatch, Estimator::kUnknown}) {
    if (estimator_name(estimator) == name) return estimator;
  }
  throw InputError(join("estimator: unknown name '", name, "'; allowed are consecutive, full, same_batch, unknown"));
}

}  // namespace gluon
