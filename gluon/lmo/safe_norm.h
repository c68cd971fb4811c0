// Euclidean lengths that neither overflow nor underflow: entries are divided by the largest one before squaring,
// so that gradients of 1e-30 and 1e30 have a length in float32 too.

#pragma once

#include <ATen/core/Tensor.h>

namespace gluon {

/// The largest absolute entry along `dims`, kept as dimensions of size 1.
at::Tensor largest_entry(const at::Tensor& x, at::IntArrayRef dims);

/// `divisor` with its zeros replaced by ones, so that 0 / it is 0.
at::Tensor one_if_zero(const at::Tensor& divisor);

/// l2 length of x along `dims`, kept as dimensions of size 1.
at::Tensor safe_length(const at::Tensor& x, at::IntArrayRef dims);

/// x divided by its l2 length along `dims`; zero where that length is zero.
at::Tensor safe_normalized(const at::Tensor& x, at::IntArrayRef dims);

}  // namespace gluon
