#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/kernels/cublas_product.h"
#include "lab/models/kernels.h"

namespace gluon::lab::fused {
namespace {

using kernels::CublasMatrices;
using kernels::CublasProduct;

// C (m, n) = op(A) op(B), of depth k. cuBLAS counts columns first, so that it computes C^T = op(B)^T op(A)^T.
struct Shape {
  int device;
  int64_t m, n, k;
  bool transpose_a, transpose_b, wide_c;  // C in float32

  bool operator<(const Shape& other) const { return key() < other.key(); }

 private:
  std::tuple<int, int64_t, int64_t, int64_t, bool, bool, bool> key() const {
    return {device, m, n, k, transpose_a, transpose_b, wide_c};
  }
};

// What cuBLAS proposes first for results of many tiles keeps both warpgroups of a block on one tile, so that the tensor
// cores wait at its end. Where tiles are short, or many, kernels whose warpgroups take turns are faster; measured on an
// H200 under load with cuBLAS 13.0: 1.06 to 1.17 times. The choice is fixed, since another kernel gives other bits.
std::span<const CublasProduct::Kernel> preferred_kernels(const Shape& shape) {
  constexpr int64_t kShort = 1024, kLong = 16384, kManyTiles = 1000;
  static constexpr CublasProduct::Kernel kOfShort[] = {{CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_CLUSTER_SHAPE_2x1x1},
                                                       {CUBLASLT_MATMUL_TILE_176x128, CUBLASLT_CLUSTER_SHAPE_1x2x1},
                                                       {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_CLUSTER_SHAPE_2x1x1}};
  static constexpr CublasProduct::Kernel kOfLong[] = {{CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_CLUSTER_SHAPE_2x1x1},
                                                      {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_CLUSTER_SHAPE_1x2x1}};
  if (shape.m * shape.n / (128 * 128) < kManyTiles) return {};
  if (shape.k <= kShort) return kOfShort;
  if (shape.k >= kLong) return kOfLong;
  return {};
}

// A contiguous matrix as cuBLAS sees it, transposed.
CublasMatrices seen(cudaDataType type, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  return {.type = type, .rows = columns, .columns = rows, .column_stride = columns, .transposed = transposed};
}

CublasProduct& product_of(cublasLtHandle_t handle, const Shape& shape) {
  static std::mutex mutex;
  static std::map<Shape, CublasProduct> products;
  const std::lock_guard lock(mutex);
  const auto found = products.find(shape);
  if (found != products.end()) return found->second;
  return products
      .try_emplace(shape, handle, seen(CUDA_R_16BF, shape.k, shape.n, shape.transpose_b),
                   seen(CUDA_R_16BF, shape.m, shape.k, shape.transpose_a),
                   seen(shape.wide_c ? CUDA_R_32F : CUDA_R_16BF, shape.m, shape.n, false),
                   CublasProduct::Choice{.preferred = preferred_kernels(shape)})
      .first->second;
}

int64_t rows_of(const at::Tensor& x, bool transposed) { return x.size(transposed ? 1 : 0); }

}  // namespace

void multiply_(const at::Tensor& c, const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b,
               bool add) {
  for (const at::Tensor* matrix : {&a, &b, &c}) {
    GLUON_CHECK(matrix->dim() == 2 && matrix->is_contiguous() && matrix->is_cuda() && matrix->device() == c.device(),
                "multiply: expected contiguous matrices on one GPU, got ", matrix->sizes(), " on ", matrix->device());
  }
  const auto is_half = [](const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; };
  GLUON_CHECK(is_half(a) && is_half(b) && (is_half(c) || c.scalar_type() == at::kFloat),
              "multiply: expected bfloat16 factors and a result in bfloat16 or float32, got ", a.scalar_type(), ", ",
              b.scalar_type(), " and ", c.scalar_type());
  const int64_t m = rows_of(a, transpose_a), k = rows_of(a, !transpose_a), n = rows_of(b, !transpose_b);
  GLUON_CHECK(rows_of(b, transpose_b) == k && c.size(0) == m && c.size(1) == n, "multiply: ", a.sizes(), " and ",
              b.sizes(), " do not make ", c.sizes());
  if (c.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(c.device());
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  const Shape shape{c.device().index(), m, n, k, transpose_a, transpose_b, !is_half(c)};
  const at::Tensor workspace = at::empty({CublasProduct::kWorkspaceBytes}, c.options().dtype(at::kByte));
  product_of(handle, shape)
      .run(1, b.data_ptr(), a.data_ptr(), add ? 1 : 0, c.data_ptr(), c.data_ptr(), workspace.data_ptr(),
           at::cuda::getCurrentCUDAStream());
}

}  // namespace gluon::lab::fused
