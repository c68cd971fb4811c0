// The two wide products of an MLP with a squared ReLU, in bfloat16 on Hopper's tensor cores, fused with the function
// that follows each:
//
//   forward     y  = 2 relu(x w^T)^2                x (rows, depth), w (columns, depth)
//   backward    dx = sqrt(8 y) (g w)                g (rows, depth), w (depth, columns), y of the forward pass
//
// The numbers are those of a product rounded to bfloat16 followed by the function, but the product is not stored: 4
// bytes per entry less in each pass. Only y is kept in between; its rounding moves the root by half as much as that of
// x w^T would. Needs compute capability 9.0. In the flow: lab/models/fused.h.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

/// Matrices without gaps, addresses divisible by 16; depth and columns divisible by 8.
struct MlpShape {
  int64_t rows = 0;
  int columns = 0, depth = 0;
};

/// y = 2 relu(x w^T)^2; NaN stays NaN.
cudaError_t mlp_up(const MlpShape& shape, const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y,
                   cudaStream_t stream);

/// dx = sqrt(8 y) (g w); dx may be y.
cudaError_t mlp_down_backward(const MlpShape& shape, const __nv_bfloat16* g, const __nv_bfloat16* w,
                              const __nv_bfloat16* y, __nv_bfloat16* dx, cudaStream_t stream);

}  // namespace gluon::lab::cuda
