// Kernels: operations that ATen would do in several passes over memory or in more products than needed, as one.
//
// The CUDA sources (cuda/*.cu) know no tensors; these functions do, and put them on the current stream. Each has its
// plain form elsewhere, which is its specification and what every other device runs: gluon/update/layer_batch.cpp,
// gluon/lmo/orthogonalize/quintic_iteration.cpp and lab/models/nanogpt.cpp. kernels/cuda_kernels.cpp is built with a
// LibTorch that has CUDA, kernels/no_cuda.cpp otherwise.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/lmo/orthogonalize/quintic_iteration.h"

namespace gluon::kernels {

/// Whether the kernels are built in and `tensor` lies on a device they run on: compute capability 9.0, as an H200.
bool available(const at::Tensor& tensor);

/// Why not, in a few words; empty where they are.
std::string why_unavailable(const at::Device& device);

/// Whether what is put on the device's current stream goes into a CUDA graph; false where the kernels are not built in.
bool is_captured(const at::Device& device);

/// Seconds the device spent on what `work` put on the current stream, by its own clock, waiting for the host included;
/// nothing where the kernels are not built in.
std::optional<double> device_seconds(const std::function<void()>& work);

/// The most bytes that tensors on the device have held at once; 0 where the kernels are not built in.
int64_t peak_bytes(const at::Device& device);

// The optimizer's step, stage by stage; a whole one is in fused_step.h. Stacks are (c, m, n).

// Tables are in device memory, see mirror.h.

/// M_i <- w_0 M_i + w_1 g_i for all gradients, contiguous float32, in one launch.
void accumulate_momentum(const at::Tensor& momentum, const float* const* gradients, const float* weights);

/// The polar factors of float32 matrices times `factor`, in float16 (b, m, n): normalised in float32, iterated on the
/// tensor cores in float16. Singular values are bounded by Schatten 4 whatever the plan says, restarts are the
/// kernel's own.
at::Tensor polar(const at::Tensor& batch, const QuinticPlan& plan, double factor);

/// X_i <- (1 - decay t_i) X_i + t_i D_i for float32 parameters, contiguous, and directions (c, m, n) in float32 or
/// float16; radii (c) float32 on the device.
void update_parameters(float* const* parameters, const at::Tensor& directions, const at::Tensor& radii,
                       double decay);

// The trainer's step, bfloat16 with float32 arithmetic. Rows are contiguous.

struct RmsNorm {
  at::Tensor normed;   // x / rms(x) (..., width)
  at::Tensor inverse;  // 1 / rms(x) of every row, float32
};
RmsNorm rms_norm(const at::Tensor& x);

/// The gradient of x from that of normed, plus `residual`, the one that reaches x past the norm, when defined.
at::Tensor rms_norm_backward(const RmsNorm& norm, const at::Tensor& gradient, const at::Tensor& residual);

/// x (..., k), weight (n, k) -> 2 relu(x weight^T)^2 (..., n).
at::Tensor mlp_up(const at::Tensor& x, const at::Tensor& weight);

/// The gradient of x weight^T from that of what follows, (N, k), the next product's weight (k, n), and the square above
/// (N, n).
at::Tensor mlp_down_backward(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& square);

struct Rotary {
  at::Tensor cos, sin;  // (positions, D / 2) float32
  int64_t heads = 0;
};

/// Norms and turns queries and keys of qkv (B, T, 3, heads, D) in place; returns their inverse rms for the way back.
at::Tensor qk_rotary_(const at::Tensor& qkv, const Rotary& rotary);

/// The gradient of qkv (B, T, 3, heads, D) from those of queries, keys and values (B, T, heads, D) after the turn.
at::Tensor qk_rotary_backward(const at::Tensor& qkv, const at::Tensor& inverse_rms, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const Rotary& rotary);

/// Cross-entropy of each row of logits (n, vocabulary), contiguous, against labels (n), float32 (n); with `scale` the
/// logits become their gradient times it.
at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& labels, std::optional<double> scale);

/// The gradient of an embedding (v, width) that is the head, too: `scale`, one float32 on the device, times `head`, and
/// the rows of `gradient` (n, width), bfloat16, at their tokens (n).
at::Tensor embedding_gradient(const at::Tensor& head, const at::Tensor& scale, const at::Tensor& tokens,
                              const at::Tensor& gradient);

}  // namespace gluon::kernels
