// Squared ReLU, the activation of the MLP, in bfloat16 with float32 arithmetic.
//
//   y  = (sqrt(2) relu(x))^2 = 2 relu(x)^2
//   dx = 4 relu(x) dy = sqrt(8 y) dy
//
// Only y lives from the forward pass to the backward one: its rounding moves the root by half as much as that of x
// would.
// 4 bytes an entry forward (read x, write y), 6 backward (read y and dy, write dx).
// In the flow: between the two products of a block's MLP, see lab/models/nanogpt.h.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::cuda {

/// y = 2 relu(x)^2 over `count` entries; y may be x. NaN stays NaN.
cudaError_t squared_relu_forward(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t count,
                                 cudaStream_t stream);

/// dx = sqrt(8 y) dy over `count` entries, y from squared_relu_forward(); dx may be dy.
cudaError_t squared_relu_backward(const __nv_bfloat16* y, const __nv_bfloat16* dy, __nv_bfloat16* dx,
                                  int64_t count, cudaStream_t stream);

}  // namespace gluon::cuda
