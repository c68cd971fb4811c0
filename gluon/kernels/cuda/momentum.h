// Fused momentum: the gradients of all layers of a shape, folded into their stacked momentum by one launch, and the
// orthogonalizer's half precision input by a second one.
//
//   M_i   <- beta M_i + (1 - beta) g_i                    for c matrices of `size` entries
//   input  = g_i                       momentum "none"
//            M_i                       ema
//            beta M_i + (1 - beta) g_i nesterov
//   |input_i|^2                        summed in float64: 1e-30 and 1e30 need no special care
//   output = input * length / |input|  zero stays zero, no epsilon
//
// accumulate_momentum() reads the gradient and reads and writes the momentum (12 bytes an entry with float32
// gradients) and leaves one partial sum of squares a block; write_normalized_input() adds these up in a fixed order
// and writes the output (6 bytes an entry for half precision; nesterov reads the gradient once more). Nothing waits
// for the host. In the flow: gradient -> momentum -> input of the LMO. (paper: algorithm "Gluon", its momentum line)

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gluon/kernels/cuda/element_type.h"

namespace gluon::cuda {

enum class MomentumInput { kGradient, kMomentum, kNesterov };

/// Pointers are to device memory. An address that is not divisible by 16, or a size not divisible by 4, is allowed
/// and slower.
struct MomentumStep {
  int64_t count = 0;  // c
  int64_t size = 0;   // entries of one matrix, contiguous
  MomentumInput input = MomentumInput::kMomentum;
  const void* const* gradients = nullptr;             // c pointers
  ElementType gradient_type = ElementType::kFloat32;  // or kBFloat16
  float* momentum = nullptr;                          // (c, size); null for kGradient
  const float* weights = nullptr;  // {beta, 1 - beta}, read when the kernel runs; null for kGradient
  double* partials = nullptr;      // scratch, (c, momentum_partials(size))
};

/// Partial sums a matrix of `size` entries needs; depends on nothing else.
int64_t momentum_partials(int64_t size);

/// Updates the momentum (nothing for kGradient) and writes the partial sums of squares of the LMO's input.
/// cudaErrorInvalidValue for missing pointers, negative sizes and other gradient types.
cudaError_t accumulate_momentum(const MomentumStep& step, cudaStream_t stream);

/// Writes output (c, size) in `output_type`: the LMO's input, each matrix with Frobenius norm `length`. Call it after
/// accumulate_momentum() on the same stream. `norms` (c), the norms before that, may be null. A matrix with a NaN or
/// an infinite entry becomes NaN.
cudaError_t write_normalized_input(const MomentumStep& step, void* output, ElementType output_type,
                                   float length, float* norms, cudaStream_t stream);

}  // namespace gluon::cuda
