// Kernels: operations that ATen would do in several passes over memory or in more products than needed, as one.
//
// The CUDA sources (cuda/*.cu) know no tensors; these functions do, and put them on the current stream. Each has its
// plain form elsewhere, which is its specification and what every other device runs: gluon/update/layer_batch.cpp and
// gluon/lmo/orthogonalize/quintic_iteration.cpp. kernels/cuda_kernels.cpp is built with a LibTorch that has CUDA,
// kernels/no_cuda.cpp otherwise.

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

}  // namespace gluon::kernels
