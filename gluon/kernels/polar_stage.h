// PolarStage: FusedStep's polar iteration of a chunk of matrices, from float16 input to float16 polar factors.
//
//   hopper      one launch of our own products, which can also move the parameters (cuda/orthogonalize.h)
//   portable    products of cuBLAS with small kernels of ours between them (cuda_portable_polar.cpp)
//
// Both compute the steps of core/lmo_form.h as half_plan.h says, the first one on X / (safety |R|_F^(1/2)), and both
// can be captured into a CUDA graph: nothing is allocated, nothing waits.

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gluon/core/lmo_form.h"
#include "gluon/kernels/cuda/symmetric_product.h"

namespace gluon::kernels {

/// The most pieces in one run.
inline constexpr std::size_t kMostPieces = 8;

/// Matrices of one stack, `columns` divisible by 8. Both buffers are (count, rows, columns), contiguous, at addresses
/// divisible by 256.
struct PolarPiece {
  int count = 0;
  int stack_count = 0;  // matrices of the whole stack, of which these may be a part
  int rows = 0, columns = 0;
  __half* x = nullptr;             // the input, its norm about orthogonalize_input_length(), then the polar factor
  __half* other = nullptr;         // scratch memory
  cuda::Product::Target target{};  // given only where moves_parameters(): X is added to these instead
};

class PolarStage {
 public:
  virtual ~PolarStage() = default;

  /// Whether run() can add the polar factors of matrices with so many columns to the parameters itself.
  virtual bool moves_parameters(int64_t columns) const = 0;

  /// Bytes of workspace; needs no pointers.
  virtual int64_t workspace_bytes(std::span<const PolarPiece> pieces) const = 0;

  /// Afterwards x holds the result; it may have changed places with `other`. `workspace`: device memory at an address
  /// divisible by 256. Throws InputError when a kernel or cuBLAS refuses.
  virtual void run(std::span<PolarPiece> pieces, void* workspace, int64_t bytes, cudaStream_t stream) const = 0;
};

std::unique_ptr<PolarStage> hopper_polar(std::vector<PolarStep> steps, double safety);
std::unique_ptr<PolarStage> portable_polar(std::vector<PolarStep> steps, double safety);

}  // namespace gluon::kernels
