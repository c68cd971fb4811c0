// The precision of computations: float64 tensors in float64, all narrower ones in float32.

#pragma once

#include <c10/core/ScalarType.h>

namespace gluon {

inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::ScalarType::Double ? type : at::ScalarType::Float;
}

}  // namespace gluon
