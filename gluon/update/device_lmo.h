// device_lmo: a norm's LMO by the fastest means of the device its argument is on.

#pragma once

#include "gluon/lmo/norm.h"

namespace gluon {

/// norm.lmo(g) for float32 or float64 (b, m, n). On a Hopper GPU, float32 and a polar LMO are computed by the kernels:
/// normalised in float32, iterated and returned in float16.
at::Tensor device_lmo(const Norm& norm, const at::Tensor& g);

}  // namespace gluon
