// The polar factor of stacks of matrices in half precision on Hopper: the steps of core/lmo_form.h, as
// kernels/half_plan.h says, in one launch of symmetric_product.h.
//
// On the smaller side: R = X^T X and X <- X Z for tall matrices. Multiples of the identity are added in a product's
// fp32 epilogue. The input is divided by safety |R|_F^(1/2) (Schatten 4), which is at least its largest singular
// value; the factor goes into the first step's products, on the device. Zero gives zero. float32
// input of any scale is first scaled to a Frobenius norm that suits half precision, by a sum of squares in float64.
//
// One launch runs up to eight stacks (96 products). Nothing waits for the host, nothing is allocated, results do not
// depend on scheduling, and CUDA graphs can capture the calls.
//
// In the flow: momentum -> LMO direction.

#pragma once

#include <cstddef>

#include "gluon/core/lmo_form.h"
#include "gluon/kernels/cuda/symmetric_product.h"

namespace gluon::cuda {

enum class ElementType { kFloat32, kFloat16 };

struct OrthogonalizeStack {
  int count = 0;              // matrices
  int rows = 0, columns = 0;  // of each
  const void* input = nullptr;
  ElementType input_type = ElementType::kFloat16;
  int64_t row_stride = 0, matrix_stride = 0;  // of the input, in entries; kFloat16: rules of HalfStack
  HalfStack output;                           // (count, rows, columns); may not overlap the input
  /// If given, the polar factors are added to these matrices, and the output is scratch memory; columns divisible by
  /// 64.
  Product::Target target;
};

struct OrthogonalizeOptions {
  std::span<const PolarStep> steps;  // host memory, read during the call
  double safety = 1.01;              // the first step expects singular values in [0, 1 / safety]
};

/// The Frobenius norm that half precision input should have, within a factor of 10: sqrt(min(m, n)), at most 181, so
/// that neither X nor X X^T leaves the range of half precision.
float orthogonalize_input_length(int rows, int columns);

/// Bytes of workspace; 0 for invalid arguments. Depends only on shapes, types and options.
size_t orthogonalize_workspace(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options);

/// Writes the polar factors, or adds them to the targets. `workspace`: device memory, address divisible by 256.
/// cudaErrorInvalidValue for missing pointers, misaligned strides, empty shapes, no steps and a workspace that
/// is too small; cudaErrorNotSupported before compute capability 9.0.
cudaError_t orthogonalize(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options,
                          void* workspace, size_t workspace_bytes, cudaStream_t stream);

}  // namespace gluon::cuda
