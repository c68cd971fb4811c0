// The language model's fused operations on a GPU, in bfloat16 with float32 arithmetic. Rows are contiguous.
//
// The CUDA sources (lab/models/cuda/*.cu) know no tensors; these functions take contiguous tensors of one GPU and
// launch on its current stream. The plain forms in lab/models/nanogpt.cpp specify them. lab/models/cuda_kernels.cpp is
// built with a LibTorch that has CUDA, lab/models/no_cuda.cpp otherwise; kernels::available() (gluon/kernels/kernels.h)
// says whether they run. They throw InputError where they do not, and for types, sizes and devices other than these.
//
// The values of tokens are on the GPU, and nothing waits for them. One outside the vocabulary never becomes an address:
// a label makes the loss and its gradient NaN, an input the gradient of the embedding, and the optimizer refuses the
// step.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

namespace gluon::lab::fused {

struct RmsNorm {
  at::Tensor normed;   // x / rms(x) (..., width)
  at::Tensor inverse;  // 1 / rms(x) of every row, float32
};
RmsNorm rms_norm(const at::Tensor& x);

/// The gradient of x from that of normed, plus `residual`, the gradient that reaches x around the norm, if defined.
at::Tensor rms_norm_backward(const RmsNorm& norm, const at::Tensor& gradient, const at::Tensor& residual);

/// x (..., k), weight (n, k) -> 2 relu(x weight^T)^2 (..., n).
at::Tensor mlp_up(const at::Tensor& x, const at::Tensor& weight);

/// The gradient of x weight^T (N, n) from that of the next product's output (N, k), its weight (k, n), and mlp_up()'s
/// output (N, n).
at::Tensor mlp_down_backward(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& square);

struct Rotary {
  at::Tensor cos, sin;  // (positions, D / 2) float32
  int64_t heads = 0;
};

/// Normalises and rotates queries and keys of qkv (B, T, 3, heads, D) in place; returns their inverse rms for the
/// backward pass.
at::Tensor qk_rotary_(const at::Tensor& qkv, const Rotary& rotary);

/// The gradient of qkv (B, T, 3, heads, D) from those of queries, keys and values (B, T, heads, D) after the rotation.
at::Tensor qk_rotary_backward(const at::Tensor& qkv, const at::Tensor& inverse_rms, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const Rotary& rotary);

/// Cross-entropy of each row of logits (n, vocabulary) against labels (n) int64, float32 (n). With `scale`, the
/// gradient times `scale` replaces the logits. A label outside the vocabulary makes its row NaN.
at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& labels, std::optional<double> scale);

/// The gradient of an embedding (v, width) that is also the head: `head` times `scale`, one float32 on the device, plus
/// the rows of `gradient` (n, width), bfloat16, at their tokens (n) int64. A token outside makes row 0 NaN.
at::Tensor embedding_gradient(const at::Tensor& head, const at::Tensor& scale, const at::Tensor& tokens,
                              const at::Tensor& gradient);

/// C = op(A) op(B), plus C if `add`, where op transposes if asked: contiguous bfloat16 matrices, C also float32. By
/// cuBLAS, with the kernels that are the fastest on Hopper in training. Two runs give the same bits.
void multiply_(const at::Tensor& c, const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b,
               bool add = false);

/// Puts `first` on the current stream of the GPU and `second`, which needs nothing from it, on one beside; what comes to
/// the current stream afterwards waits for both. Where one product leaves multiprocessors idle, the other one has them.
void side_by_side(const at::Device& device, const std::function<void()>& first, const std::function<void()>& second);

}  // namespace gluon::lab::fused
