// Kernels: operations that ATen would do in several passes over memory or in more products than needed, as one.
//
// The CUDA sources (cuda/*.cu) know no tensors; these functions do, and put them on the current stream. Each has its
// plain form elsewhere, which is its specification and what every other device runs: gluon/update/plain_executor.cpp
// and gluon/lmo/orthogonalize/polar_iteration.cpp. kernels/cuda_kernels.cpp is built with a LibTorch that has CUDA,
// kernels/no_cuda.cpp otherwise. A whole step is in fused_step.h.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "gluon/core/lmo_form.h"

namespace gluon::kernels {

/// Whether the kernels for Hopper's tensor cores are built in and `tensor` lies on a device they run on: compute
/// capability 9.0, as an H200.
bool available(const at::Tensor& tensor);

/// Why not, in a few words; empty where they are.
std::string why_unavailable(const at::Device& device);

/// What moves float32 layers on a device.
enum class StepPath {
  kPlain,     // ATen, batch after batch
  kPortable,  // fused_step.h, with products of cuBLAS: compute capability 8.0 and later
  kHopper,    // fused_step.h, with our own products: compute capability 9.0
};

/// The fastest that the device can take. GLUON_PORTABLE_KERNELS=1 in the environment makes a Hopper GPU take kPortable,
/// so that it can be tested there. Throws InputError for values other than 0 and 1.
StepPath step_path(const at::Device& device);

/// Why it is not kHopper, in a few words that name the device; empty where it is.
std::string why_not_hopper(const at::Device& device);

/// Whether the device's current stream is being captured into a CUDA graph; false where the kernels are not built in.
bool is_captured(const at::Device& device);

/// Seconds the device spent on what `work` put on the current stream, by its own clock, waiting for the host included;
/// nothing where the kernels are not built in.
std::optional<double> device_seconds(const std::function<void()>& work);

/// The most bytes that tensors on the device have held at once; 0 where the kernels are not built in.
int64_t peak_bytes(const at::Device& device);

/// lmo(g) of float32 matrices (b, m, n) for a kPolar form, in float16: normalised in float32, iterated on the tensor
/// cores. Needs available().
at::Tensor polar_lmo(const at::Tensor& g, const LmoForm& form);

/// The same where step_path() is kPortable, and on Hopper.
at::Tensor portable_polar_lmo(const at::Tensor& g, const LmoForm& form);

}  // namespace gluon::kernels
