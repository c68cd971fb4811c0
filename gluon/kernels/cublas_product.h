// CublasProduct: D = alpha A B + beta C on stacks of matrices, with sums in float32, by cuBLAS.
//
// cublasLt rather than cublas: its workspace comes with each call, so that a captured graph depends on nobody's handle;
// it adds a third matrix without a copy of it first; and the algorithm is ours to choose. It is chosen once, by shapes
// alone: two runs give the same bits.

#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <span>

namespace gluon::kernels {

/// Throws InputError unless a call of cuBLAS succeeded.
void check(cublasStatus_t status, const char* what);

/// A stack of matrices as cuBLAS sees it, with contiguous columns: one with contiguous rows, transposed.
struct CublasMatrices {
  cudaDataType type = CUDA_R_16F;
  int64_t rows = 0, columns = 0, column_stride = 0;
  int32_t count = 1;        // one after another, without gaps
  bool transposed = false;  // by the product

  CublasMatrices transpose() const { return {type, rows, columns, column_stride, count, !transposed}; }
};

class CublasProduct {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS's manual recommends for Hopper

  /// What one of cuBLAS's kernels computes at a time, and which blocks share operands.
  struct Kernel {
    uint32_t tile = 0;
    uint16_t cluster = 0;

    bool operator==(const Kernel&) const = default;
  };

  struct Choice {
    int32_t count = 0;  // choose for stacks of so many instead of those given, 0: for those given
    bool divides_sums = true;
    std::span<const Kernel> preferred{};  // the first of these that cuBLAS proposes, or else its first proposal
  };

  /// Throws InputError when cuBLAS has no algorithm.
  CublasProduct(cublasLtHandle_t handle, const CublasMatrices& a, const CublasMatrices& b, const CublasMatrices& d,
                const Choice& choice);
  CublasProduct(const CublasProduct&) = delete;
  CublasProduct& operator=(const CublasProduct&) = delete;

  /// D may be C. `workspace`: kWorkspaceBytes of device memory that only this stream uses.
  void run(float alpha, const void* a, const void* b, float beta, const void* c, void* d, void* workspace,
           cudaStream_t stream);

 private:
  void describe(const CublasMatrices& a, const CublasMatrices& b, const CublasMatrices& d, int32_t count);
  void choose(const Choice& choice);

  cublasLtHandle_t handle_;
  cublasLtMatmulDescOpaque_t product_;
  cublasLtMatrixLayoutOpaque_t a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_;
};

}  // namespace gluon::kernels
