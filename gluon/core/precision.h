// In which precision a tensor is computed with: float64 in itself, everything narrower in float32.

#pragma once

#include <c10/core/ScalarType.h>

namespace gluon {

inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::ScalarType::Double ? type : at::ScalarType::Float;
}

}  // namespace gluon
