// QK norm and rotary positions of all heads in one pass, in bfloat16 with float32 arithmetic.
//
//   n     = x r,  r = 1 / sqrt(mean(x^2) + eps)                        over a head's D entries, x a query or a key
//   out   = [n1 cos + n2 sin, n2 cos - n1 sin]                         n = [n1, n2], its halves; angles of position t
//
// and backward, from `out` (which attention keeps) and r alone, so that the projections need not be saved:
//
//   u     = dout - out mean(out dout)                                  a rotation changes no inner product
//   dx    = r [u1 cos - u2 sin, u1 sin + u2 cos]
//
// The caller provides the tables, float32 (positions, D / 2): cos and sin of t / 10000^(2 i / D), as in
// lab/models/attention.h. The heads of a token are contiguous; rows may be wider (queries, keys and values side by
// side). 4 bytes per entry forward, 6 backward. The backward pass also copies the values' gradient into such rows, 4
// bytes per entry. In the flow: between the projections of a block and its attention.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

struct RotaryShape {
  int64_t tokens = 0;          // B T
  int64_t positions = 0;       // T: token i has position i % T
  int64_t heads = 0;           // H
  int64_t dimension = 0;       // D, a multiple of 16 up to 512
  const float* cos = nullptr;  // (>= T, D / 2)
  const float* sin = nullptr;
};

/// Entry j of head h of token i is data[i * token_stride + h * D + j]; 16-byte aligned, strides multiples of 8.
struct Heads {
  __nv_bfloat16* data = nullptr;
  int64_t token_stride = 0;
};

/// Queries, keys and, in the backward pass, the gradient of values.
struct QueryKeyValue {
  Heads query, key, value;
};

/// Writes the normalised, rotated queries and keys, which may replace their inputs, and r as inverse_rms (tokens, 2,
/// heads), queries before keys. This and the function below return cudaErrorInvalidValue for other shapes.
cudaError_t qk_rotary_forward(const RotaryShape& shape, const QueryKeyValue& in, const QueryKeyValue& out,
                              float* inverse_rms, cudaStream_t stream);

/// Writes the gradients of the projections from those of `out`, which they may replace. Copies those of the values.
cudaError_t qk_rotary_backward(const RotaryShape& shape, const QueryKeyValue& out, const float* inverse_rms,
                               const QueryKeyValue& dout, const QueryKeyValue& din, cudaStream_t stream);

}  // namespace gluon::lab::cuda
