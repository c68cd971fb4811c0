// Attention: the parts of a transformer block that hold no parameters.
//
//   rms_norm(x)    = x / sqrt(mean(x^2) + eps)                          over the last dimension, no weights
//   rotate(x)_t    = [x1 cos + x2 sin, x2 cos - x1 sin]                 x = [x1, x2], its halves,
//                    with the angles t / 10000^(2 i / D), i < D / 2     t the position of the token
//   attention(q, k, v)_t = sum_{s <= t} softmax_s(<q_t, k_s> / sqrt(D)) v_s
//
// Queries and keys are normalised (QK norm), then rotated: positions enter a score as t - s only, and no score exceeds
// sqrt(D). Without QK norm they are only rotated, and scores grow with the weights.
// LibTorch 2.x has attention as one operator; for 1.13 attention.cpp writes it out as two batched products, the first
// of which adds the mask.

#pragma once

#include <torch/types.h>

#include <cstdint>

namespace gluon::lab {

/// x (..., n) -> (..., n) with mean square 1 in the last dimension; zero stays zero. eps is the dtype's machine
/// epsilon (float32's for narrower ones).
torch::Tensor rms_norm(const torch::Tensor& x);

/// The rotary angles (positions, D / 2), float64.
torch::Tensor rotary_angles(int64_t positions, int64_t head_dimension);

/// Causal attention of queries, keys, values (B, H, T, D) -> (B, H, T, D). Raises each entry of `largest` (H), if
/// defined, to the largest score of its head; NaN stays. LibTorch 2.x then computes the scores once more.
torch::Tensor causal_attention(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                               const torch::Tensor& largest = {});

/// Attention with rotary positions, and QK norm unless told otherwise, for up to `context` tokens. All blocks of a
/// model share one: it keeps the tables of angles, and makes them anew for another device or dtype.
class CausalAttention {
 public:
  CausalAttention(int64_t context, int64_t head_dimension, bool qk_norm = true);

  /// Queries, keys, values (B, T, H, D) as projected -> (B, T, H, D). T <= context. `largest` as above.
  torch::Tensor operator()(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                           const torch::Tensor& largest = {});

  /// Rotates every head of x (B, T, H, D) by the angles of its position -> (B, T, H, D).
  torch::Tensor rotate(const torch::Tensor& x);

 private:
  void make_tables(const torch::TensorOptions& options);

  int64_t context_;
  int64_t head_dimension_;
  bool qk_norm_;
  torch::Tensor cos_;  // (context, 1, D), both halves the same
  torch::Tensor sin_;  // (context, 1, D), the second half negated
};

}  // namespace gluon::lab
