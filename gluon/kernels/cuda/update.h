// Parameter updates: one launch moves all layers of a shape.
//
//   X_i <- (1 - decay t_i) X_i + t_i s D_i            i < c, `size` entries each
//
// t_i is the radius, on the device; s is the factor from the given direction to the LMO's (-1 times the width factor
// of the norm); decay is the weight decay, or 1 / rho in the ball of radius rho. In the flow: radius -> update. (paper:
// algorithm "Gluon", its last line)

#pragma once

#include "gluon/kernels/cuda/momentum.h"

namespace gluon::cuda {

/// Pointers are to device memory.
struct ParameterUpdate {
  float* const* parameters = nullptr;  // c pointers
  const float* radii = nullptr;        // (c), read when the kernel runs
  float direction_factor = -1;         // s
  float decay = 0;
};

/// Moves the parameters by half precision directions (c, size), 10 bytes per entry; `step` gives c, size and verdict.
/// This and the function below return cudaErrorInvalidValue for missing pointers and negative sizes.
cudaError_t update_parameters(const MomentumStep& step, const __half* directions, const ParameterUpdate& update,
                              cudaStream_t stream);

/// Momentum, LMO of max_entry and update of whole layers (the embedding) in one pass of 20 bytes per entry: M_i as in
/// momentum.h, then D_i = sign(input_i). sign(0) is 0, and so is sign(NaN), as in ATen; the momentum keeps the NaN.
/// (paper: section "Special cases of the LMO framework", 1->inf)
cudaError_t update_by_sign(const MomentumStep& step, const ParameterUpdate& update, cudaStream_t stream);

}  // namespace gluon::cuda
