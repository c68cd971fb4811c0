// RMS norm without weights in bfloat16, with float32 arithmetic.
//
//   out = x r,   r = 1 / sqrt(mean(x^2) + eps)                         over each row of `width` entries
//   dx  = r (dout - out mean(out dout)) + dresidual
//
// eps is float32's machine epsilon, as in lab/models/attention.h. The backward pass reads r and out, which the
// following product keeps anyway, so x may be overwritten. A row is read once and kept in registers. Bytes per entry:
// forward 4; backward 6, with the residual's gradient 8. In the flow: before attention, the MLP and the head.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

/// Rows (rows, width), contiguous, 16-byte aligned; width a multiple of 8 up to 8192, cudaErrorInvalidValue otherwise.
/// `inverse` has r of each row; `out` may be x.
cudaError_t rms_norm_forward(const __nv_bfloat16* x, __nv_bfloat16* out, float* inverse, int64_t rows, int64_t width,
                             cudaStream_t stream);

/// `dresidual`, the gradient that reaches x around the norm, may be null; `dx` may be dout or dresidual.
cudaError_t rms_norm_backward(const __nv_bfloat16* out, const float* inverse, const __nv_bfloat16* dout,
                              const __nv_bfloat16* dresidual, __nv_bfloat16* dx, int64_t rows, int64_t width,
                              cudaStream_t stream);

}  // namespace gluon::lab::cuda
