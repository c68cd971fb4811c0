// Fused parameter update: one launch moves all layers of a shape.
//
//   X_i <- (1 - decay t_i) X_i + t_i s D_i            i < c, `size` entries each
//
// t_i is the radius, on the device; s is the factor from the given direction to the LMO's (-1 times the width factor
// for a polar factor); decay is the weight decay, or 1 / rho in the ball of radius rho. 10 bytes per entry. In the
// flow: radius -> update. (paper: algorithm "Gluon", its last line)

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {

/// Pointers are to device memory; see MomentumStep on alignment.
struct ParameterUpdate {
  int64_t count = 0;                   // c
  int64_t size = 0;                    // entries of one matrix, contiguous
  float* const* parameters = nullptr;  // c pointers
  const __half* directions = nullptr;  // (c, size)
  const float* radii = nullptr;        // (c), read when the kernel runs
  float direction_factor = -1;         // s
  float decay = 0;
  const Verdict* verdict = nullptr;  // see verdict.h
};

/// Moves the parameters. cudaErrorInvalidValue for missing pointers and negative sizes.
cudaError_t update_parameters(const ParameterUpdate& update, cudaStream_t stream);

}  // namespace gluon::cuda
