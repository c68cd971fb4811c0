#include <array>

#include "gluon/core/check.h"
#include "gluon/kernels/cublas_product.h"

namespace gluon::kernels {
namespace {

void set_transposed(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, bool transposed) {
  const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(product, attribute, &operation, sizeof operation),
        "cublasLtMatmulDescSetAttribute");
}

void describe_stack(cublasLtMatrixLayoutOpaque_t& layout, const CublasMatrices& stack, int32_t count) {
  check(cublasLtMatrixLayoutInit(&layout, stack.type, static_cast<uint64_t>(stack.rows),
                                 static_cast<uint64_t>(stack.columns), stack.column_stride),
        "cublasLtMatrixLayoutInit");
  const int64_t matrix_stride = stack.columns * stack.column_stride;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix_stride);
}

CublasProduct::Kernel kernel_of(const cublasLtMatmulAlgo_t& algorithm) {
  CublasProduct::Kernel kernel;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto* value) {
    std::size_t written = 0;
    check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, value, sizeof *value, &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
  };
  get(CUBLASLT_ALGO_CONFIG_TILE_ID, &kernel.tile);
  get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &kernel.cluster);
  return kernel;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  GLUON_CHECK(status == CUBLAS_STATUS_SUCCESS, "kernels: ", what, " failed: ", cublasLtGetStatusString(status));
}

CublasProduct::CublasProduct(cublasLtHandle_t handle, const CublasMatrices& a, const CublasMatrices& b,
                             const CublasMatrices& d, const Choice& choice)
    : handle_(handle) {
  check(cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
  set_transposed(&product_, CUBLASLT_MATMUL_DESC_TRANSA, a.transposed);
  set_transposed(&product_, CUBLASLT_MATMUL_DESC_TRANSB, b.transposed);
  describe(a, b, d, choice.count > 0 ? choice.count : d.count);
  choose(choice);
  describe(a, b, d, d.count);
}

void CublasProduct::run(float alpha, const void* a, const void* b, float beta, const void* c, void* d, void* workspace,
                        cudaStream_t stream) {
  check(cublasLtMatmul(handle_, &product_, &alpha, a, &a_, b, &b_, &beta, c, &d_, d, &d_, &algorithm_, workspace,
                       kWorkspaceBytes, stream),
        "cublasLtMatmul");
}

void CublasProduct::describe(const CublasMatrices& a, const CublasMatrices& b, const CublasMatrices& d, int32_t count) {
  describe_stack(a_, a, count);
  describe_stack(b_, b, count);
  describe_stack(d_, d, count);
}

void CublasProduct::choose(const Choice& choice) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  if (!choice.divides_sums) {
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  }
  std::array<cublasLtMatmulHeuristicResult_t, 24> proposals{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, &product_, &a_, &b_, &d_, &d_, &preference,
                                       choice.preferred.empty() ? 1 : static_cast<int>(proposals.size()),
                                       proposals.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");
  GLUON_CHECK(count >= 1, "kernels: cuBLAS has no algorithm for a product");
  algorithm_ = proposals[0].algo;
  for (const Kernel& kernel : choice.preferred) {
    for (int i = 0; i < count; ++i) {
      if (!(kernel_of(proposals[i].algo) == kernel)) continue;
      algorithm_ = proposals[i].algo;
      return;
    }
  }
}

}  // namespace gluon::kernels
