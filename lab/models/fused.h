// The language model's training loss in bfloat16 on the kernels of lab/models/kernels.h: the fast path of
// NanoGpt::loss().
//
// Parameters stay float32 and are rounded to bfloat16 once per evaluation; their gradients are float32 sums. The
// residual stream, activations and logits are bfloat16, every sum inside an operation is float32. Per block, with x the
// residual stream and y its norm:
//
//   x, y = wte[tokens], its norm                                        Embed
//   [q, k, v] = y Wqkv^T, q and k normalised and rotated in place       QkvRotary
//   x, y = x + c_proj(attention(q, k, v)), its norm                     Project
//   x, y = x + 2 relu(y Wup^T)^2 Wdown^T, its norm                      Mlp: keeps only the square
//   loss = cross-entropy(y wte^T)                                       HeadLoss: the gradient replaces the logits
//
// There is one x, which products update in place: no backward pass needs its earlier values, since the norms' gradients
// come from y.
//
// Each of them is an autograd function with a handwritten backward pass; tests/lab/models/fused_test.cpp compares them
// with float64.

#pragma once

#include <torch/types.h>

#include <vector>

#include "lab/models/kernels.h"

namespace gluon::lab {

/// The parameters of one block.
struct NanoGptBlock {
  torch::Tensor query, key, value, projection;  // (width, width)
  torch::Tensor up;                             // (4 width, width)
  torch::Tensor down;                           // (width, 4 width)
};

/// cos and sin of the rotary angles, (positions, D / 2) float32.
fused::Rotary make_rotary(int64_t positions, int64_t heads, int64_t head_dimension, const torch::Device& device);

/// Mean cross-entropy of the model with these parameters; inputs and targets (B, T) int64. Needs kernels::available().
torch::Tensor fused_loss(const torch::Tensor& embedding, const std::vector<NanoGptBlock>& blocks,
                         const fused::Rotary& rotary, const torch::Tensor& inputs, const torch::Tensor& targets);

}  // namespace gluon::lab
