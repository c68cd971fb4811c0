// Sign update in one pass: momentum, LMO of max_entry and parameter update of whole layers (the embedding).
//
//   M_i <- beta M_i + (1 - beta) g_i
//   X_i <- (1 - decay t_i) X_i + t_i s sign(input_i)         input as in momentum.h, sign(0) = 0
//
// s is -1 times the width factor of the norm: lmo(g) = -sign(g). 20 bytes per entry. sign(NaN) is 0, as in ATen; the
// momentum keeps the NaN. In the flow: gradient -> momentum -> LMO direction -> update. (paper: section "Special cases
// of the LMO framework", 1->inf)

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {

/// Pointers are to device memory; see MomentumStep on alignment.
struct SignUpdate {
  int64_t count = 0;  // c
  int64_t size = 0;   // entries of one matrix, contiguous
  bool nesterov = false;
  const float* const* gradients = nullptr;  // c pointers
  float* momentum = nullptr;                // (c, size)
  const float* weights = nullptr;           // {beta, 1 - beta}
  float* const* parameters = nullptr;       // c pointers
  const float* radii = nullptr;             // (c)
  float direction_factor = -1;              // s
  float decay = 0;
  const Verdict* verdict = nullptr;  // see verdict.h
};

/// Updates momentum and parameters. cudaErrorInvalidValue for missing pointers and negative sizes.
cudaError_t update_by_sign(const SignUpdate& update, cudaStream_t stream);

}  // namespace gluon::cuda
