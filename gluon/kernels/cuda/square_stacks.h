// What the polar iteration does to its square matrices between cuBLAS's products (kernels/cuda_portable_polar.cpp):
//
//   measure_squares()    partial sums of |A_i|_F^2                                            2 bytes per entry
//   scale_squares()      A_i <- s_i^power A_i + s_i^identity_power identity I                 4 bytes per entry
//   add_identity()       A_i <- A_i + identity I                                              the diagonals alone
//
//   s_i = 1 / (safety |R_i|_F^(1/2)), 0 for R_i = 0, from the sums of R_i
//
// Each is one launch for all stacks, on any GPU. Sums have a fixed order: two runs give the same bits. In the flow: the
// LMO's orthogonalizer.

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

namespace gluon::cuda {

/// Square matrices in device memory, one after another, at an address divisible by 16.
struct SquareStack {
  __half* data = nullptr;  // (count, side, row_stride); entries beyond the side mean nothing
  int count = 0;
  int side = 0;
  int row_stride = 0;     // divisible by 8
  float* sums = nullptr;  // (count, square_partials(side, row_stride)); unused by add_identity()
};

inline constexpr std::size_t kMaxSquareStacks = 8;

/// Partial sums per matrix.
int square_partials(int side, int row_stride);

struct SquareScale {
  double safety = 1;
  int power = 0;
  float identity = 0;
  int identity_power = 0;
};

/// Writes the sums. This and the functions below return cudaErrorInvalidValue for more than kMaxSquareStacks, missing
/// or misaligned pointers, empty stacks and bad strides.
cudaError_t measure_squares(std::span<const SquareStack> stacks, cudaStream_t stream);

/// Reads the sums of an earlier measure_squares(). What leaves the range of half precision ends at its border.
cudaError_t scale_squares(std::span<const SquareStack> stacks, const SquareScale& scale, cudaStream_t stream);

cudaError_t add_identity(std::span<const SquareStack> stacks, float identity, cudaStream_t stream);

}  // namespace gluon::cuda
