// Sign update in one pass: momentum, LMO of max_entry and parameter update of whole layers (the embedding).
//
//   M_i <- beta M_i + (1 - beta) g_i
//   X_i <- (1 - decay t_i) X_i + t_i s sign(input_i)         input as in momentum.h, sign(0) = 0
//
// s is -1 times the width factor of the norm: lmo(g) = -sign(g). 20 bytes an entry with float32 gradients, 2 more
// with the bfloat16 copy of the parameter. sign(NaN) is 0, as ATen has it; the momentum shows the NaN. In the flow:
// gradient -> momentum -> LMO direction -> update. (paper: section "Special cases of the LMO framework", 1->inf)

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gluon/kernels/cuda/element_type.h"
#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {

/// Pointers are to device memory; see MomentumStep on alignment.
struct SignUpdate {
  int64_t count = 0;  // c
  int64_t size = 0;   // entries of one matrix, contiguous
  MomentumInput input = MomentumInput::kMomentum;
  const void* const* gradients = nullptr;             // c pointers
  ElementType gradient_type = ElementType::kFloat32;  // or kBFloat16
  float* momentum = nullptr;                          // (c, size); null for kGradient
  const float* weights = nullptr;                     // {beta, 1 - beta}; null for kGradient
  float* const* parameters = nullptr;                 // c pointers
  void* const* copies = nullptr;                      // c pointers to bfloat16; null: no copies
  const float* radii = nullptr;                       // (c)
  float direction_factor = -1;                        // s
  float decay = 0;
  const Verdict* verdict = nullptr;  // see verdict.h
};

/// Updates momentum and parameters. cudaErrorInvalidValue for missing pointers, negative sizes, other gradient types.
cudaError_t update_by_sign(const SignUpdate& update, cudaStream_t stream);

}  // namespace gluon::cuda
