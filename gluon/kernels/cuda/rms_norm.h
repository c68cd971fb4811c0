// RMS norm without weights, alone or with the residual sum before it, in bfloat16 with float32 arithmetic.
//
//   s   = x + y                              rounded to bfloat16, as it is kept
//   out = s r,   r = 1 / sqrt(mean(s^2) + eps)                         over each row of `width` entries
//   dx  = r (dout - out mean(out dout)) + dresidual                    the gradient of s, of x and of y alike
//
// eps is float32's machine epsilon, as in lab/models/attention.h. The backward pass reads s and needs nothing else
// saved. A row is read once and kept in registers. Bytes an entry: forward 4, with the sum 8; backward 6, with the
// residual's gradient 8. In the flow: before attention, before the MLP and before the head of every block.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::cuda {

/// Rows (rows, width), contiguous, 16-byte aligned; width a multiple of 8 up to 8192, cudaErrorInvalidValue otherwise.
/// With `y` (may be null) the sum goes to `sum`, which may be x or y. `out` may be x when there is no y.
cudaError_t rms_norm_forward(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* sum,
                             __nv_bfloat16* out, int64_t rows, int64_t width, cudaStream_t stream);

/// `s` is what the forward pass normalised (x, or the sum). `dresidual`, the gradient that reaches s past the norm, may
/// be null; `dx` may be dout or dresidual.
cudaError_t rms_norm_backward(const __nv_bfloat16* s, const __nv_bfloat16* dout,
                              const __nv_bfloat16* dresidual, __nv_bfloat16* dx, int64_t rows, int64_t width,
                              cudaStream_t stream);

}  // namespace gluon::cuda
