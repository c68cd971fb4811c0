// FusedStep: a whole optimizer step of many stacks on a GPU of compute capability 8.0 or later, without waiting for the
// host.
//
//   measure         |g|^2 of all layers: the verdict on their gradients, and a bound on the iteration's input
//   then, a chunk of matrices after another (scratch memory is limited):
//   accumulate      momentum, and the iteration's float16 input
//   orthogonalize   all shapes of the chunk (polar_stage.h): on Hopper our own products in one launch, whose last
//                   product moves the parameters where nothing decays; elsewhere products of cuBLAS
//   factors         where a rule normalises directions or keeps a sphere: second moments, lengths (step_factors.h)
//   update          X_i <- (1 - decay t_i) X_i + t_i D_i, where that has not happened yet
//   and sign layers momentum, sign and update in one pass
//
// When a gradient holds NaN or Inf nothing moves; verdict() tells which. From its second run on the step is one CUDA
// graph: what changes between steps (addresses of gradients, radii, beta) lies in device memory that is sent before
// the launch. Results do not depend on scheduling: two runs give the same bits.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gluon/core/lmo_form.h"

namespace gluon::kernels {

inline constexpr std::size_t kMaxFusedStacks = 64;

/// Matrices of one shape that one rule moves. Only kPolar stacks have second moments or a sphere.
struct FusedStack {
  LmoForm form{};       // D = lmo(input); kSign or kPolar
  bool decays = false;  // by Inputs::decay
  bool cautious = false;
  bool nesterov = false;
  at::Tensor momentum{};  // (c, m, n) float32, contiguous; kPolar: n divisible by 8

  /// Normalises directions (normalize/normalize.h), where `second` is defined: v, (c, m, 1) or (c, m, n), contiguous.
  struct Normalization {
    at::Tensor second{};
    double beta = 0, eps = 0;
    double unit = 1;  // the RMS entry of D
  } normalization{};

  double sphere = 0;  // R of update/sphere_step.h; 0: none
};

class FusedStep {
 public:
  /// What a stack needs for one run: addresses of contiguous float32 memory, c each, on the momentum's device;
  /// parameters at multiples of 16 bytes.
  struct Inputs {
    std::vector<const void*> gradients{}, parameters{};
    double radius = 0;
    double beta = 0;
    double decay = 0;  // of this step
  };

  struct Place {
    std::size_t stack, matrix;
  };

  /// All kPolar stacks have the same steps. `scratch_bytes` limits the memory of the iteration; a single matrix may need
  /// more. Throws InputError without kernels, on a device whose step_path() is kPlain, and when the device's memory is
  /// full.
  FusedStep(std::vector<FusedStack> stacks, int64_t scratch_bytes);
  ~FusedStep();

  /// Puts the step on the current stream, which is not being captured; `inputs` in the order of the stacks. When it
  /// throws, some stacks may have moved; later runs are judged right all the same.
  void run(std::span<const Inputs> inputs);

  /// Waits until the last run has measured its gradients, not for its end: the first matrix with a gradient that is not
  /// finite, if any.
  std::optional<Place> verdict() const;

  /// Must be called after the momentum was changed from outside.
  void momentum_changed();

 private:
  struct Device;
  std::unique_ptr<Device> device_;
};

}  // namespace gluon::kernels
