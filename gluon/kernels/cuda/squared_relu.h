// Squared ReLU, the activation of the MLP, in bfloat16 with float32 arithmetic.
//
//   y  = (sqrt(2) relu(x))^2 = 2 relu(x)^2
//   dx = 4 relu(x) dy
//
// 4 bytes an entry forward (read x, write y), 6 backward (read x and dy, write dx). The backward pass can write y
// again from the x it reads anyway, 2 bytes more, so that y need not live from the forward pass to the backward one.
// In the flow: between the two products of a block's MLP, see lab/models/nanogpt.h.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::cuda {

/// y = 2 relu(x)^2 over `count` entries; y may be x. NaN stays NaN.
cudaError_t squared_relu_forward(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t count,
                                 cudaStream_t stream);

/// dx = 4 relu(x) dy over `count` entries; dx may be dy. `y`, when not null, receives the forward pass's output and may
/// be x.
cudaError_t squared_relu_backward(const __nv_bfloat16* x, const __nv_bfloat16* dy, __nv_bfloat16* dx,
                                  __nv_bfloat16* y, int64_t count, cudaStream_t stream);

}  // namespace gluon::cuda
