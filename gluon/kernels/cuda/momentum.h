// Fused momentum of many stacks of layers, and the orthogonalizer's half precision input, without waiting for the host.
// Each function is one launch for all stacks:
//
//   measure_gradients()    partial sums of |g_i|^2                                   4 bytes per entry, float32
//   judge()                the verdict; a factor s_i for the input of each matrix
//   accumulate_momentum()  M_i <- beta M_i + (1 - beta) g_i, output = s_i input_i, |M_i|^2 for the next step     14 bytes
//
//   input  = M_i, or beta M_i + (1 - beta) g_i (nesterov)
//   s_i    = length / u_i, u_i >= |input_i|_F by the triangle inequality from |g_i| and the |M_i| before this step: the
//            output's norm is at most `length`, and smaller only as far as momentum and gradient cancel
//
// Sums are in float64, so entries of 1e-30 and 1e30 need no special care. Zero stays zero; there is no epsilon. Nothing
// is changed before all gradients have been judged: if one is not finite, the step is skipped (verdict.h). In the flow:
// gradient -> momentum -> input of the LMO. (paper: algorithm "Gluon", its momentum line)

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda {

/// Two factors whose product may be extreme: x * first stays finite and normal where x * first * second does.
struct ScalePair {
  float first, second;
};

/// Pointers are to device memory. Addresses that are not divisible by 16 and sizes not divisible by 4 are slower.
struct MomentumStep {
  int64_t count = 0;  // c
  int64_t size = 0;   // entries of one matrix, contiguous
  bool nesterov = false;
  const float* const* gradients = nullptr;  // c pointers
  float* momentum = nullptr;                // (c, size)
  const float* weights = nullptr;           // {beta, 1 - beta}, read when the kernel runs
  double* gradient_squares = nullptr;       // (c, gradient_partials(size))
  double* momentum_squares = nullptr;       // (c, momentum_partials(size)); of M between steps
  ScalePair* scales = nullptr;              // (c); null: no output follows
  __half* output = nullptr;                 // (c, size)
  float length = 1;                         // largest Frobenius norm of the output
  Verdict* verdict = nullptr;               // null, for update.h alone: the step is never skipped
};

/// Partial sums per matrix of `size` entries.
int64_t gradient_partials(int64_t size);
int64_t momentum_partials(int64_t size);

/// The most steps in one launch.
inline constexpr int kMaxMomentumSteps = 64;

/// Writes gradient_squares and clears the verdict. This and the functions below return cudaErrorInvalidValue for
/// missing pointers, negative sizes, and steps that differ in `nesterov` or `verdict`.
cudaError_t measure_gradients(std::span<const MomentumStep> steps, cudaStream_t stream);

/// Writes momentum_squares. Needed once, before the first step with this momentum: accumulate_momentum() keeps them up
/// to date, with the same bits where gradients are aligned to 16 bytes.
cudaError_t measure_momentum(const MomentumStep& step, cudaStream_t stream);

/// Writes the scales of all steps whose `scales` is not null, and to the verdict the number of the first matrix
/// (counted through all steps) whose gradient is not finite, or kAllFinite. `report`, null or host memory that the
/// device can write, gets verdict_report().
cudaError_t judge(std::span<const MomentumStep> steps, uint64_t* report, cudaStream_t stream);

/// Updates the momentum and its squares, and writes the outputs.
cudaError_t accumulate_momentum(std::span<const MomentumStep> steps, cudaStream_t stream);

}  // namespace gluon::cuda
