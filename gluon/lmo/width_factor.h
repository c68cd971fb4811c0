// Width factors: the numbers that make a radius mean the same for layers of every size.
//
// A factor is written as an expression of the layer's matrix shape (the flattened view, core/layer.h):
//
//   m, n        rows and columns            kernel     taps of a convolution (k1 k2 k3), 1 elsewhere
//   + - * / ( ) sqrt(x) max(x,y) min(x,y)   and numbers
//
// Scion's hidden layers use sqrt(n/m); its convolutions k^2 sqrt(in/out) = sqrt(kernel*n/m), since n = in k^2.

#pragma once

#include <string_view>

#include "gluon/core/layer.h"

namespace gluon {

/// The value of `expression` for `shape`. Throws InputError that shows the place it could not read.
double width_factor(std::string_view expression, const MatrixShape& shape);

}  // namespace gluon
