// The portable PolarStage. cuBLAS adds no multiple of the identity and has one factor for all matrices of a call, so
// small kernels (cuda/square_stacks.h) work on the square matrices between its products.
//
// cublasLt rather than cublas: its workspace comes with each call, so that a captured graph depends on nobody's handle;
// it adds a third matrix without a copy of it first; and the algorithm is ours to choose.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "gluon/kernels/cuda/square_stacks.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/polar_stage.h"
#include "gluon/kernels/stored_shift.h"

namespace gluon::kernels {
namespace {

void check(cublasStatus_t status, const char* what) {
  GLUON_CHECK(status == CUBLAS_STATUS_SUCCESS, "kernels: ", what, " failed: ", cublasLtGetStatusString(status));
}

using kernels::check;

constexpr int64_t kProductBytes = int64_t{32} << 20;  // of workspace: what cuBLAS's manual recommends for Hopper

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// A stack of matrices as cuBLAS sees it, with contiguous columns: one with contiguous rows, transposed.
struct Matrices {
  int64_t rows, columns, column_stride;
  bool transposed = false;  // by the product

  Matrices transpose() const { return {rows, columns, column_stride, !transposed}; }
};

// D = alpha A B + beta C on half precision stacks, with sums in float32.
class Product {
 public:
  // The algorithm is the one for `stack_count` matrices and never divides a sum: a matrix gets the same bits however
  // many others share the call.
  Product(cublasLtHandle_t handle, const Matrices& a, const Matrices& b, const Matrices& d, int count, int stack_count)
      : handle_(handle) {
    check(cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSA, a.transposed);
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSB, b.transposed);
    describe(a, b, d, stack_count);
    choose_algorithm();
    describe(a, b, d, count);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run(float alpha, const __half* a, const __half* b, float beta, const __half* c, __half* d, void* workspace,
           cudaStream_t stream) {
    check(cublasLtMatmul(handle_, &product_, &alpha, a, &a_, b, &b_, &beta, c, &d_, d, &d_, &algorithm_, workspace,
                         kProductBytes, stream),
          "cublasLtMatmul");
  }

 private:
  void set_transposed(cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(&product_, attribute, &operation, sizeof operation),
          "cublasLtMatmulDescSetAttribute");
  }

  void describe(const Matrices& a, const Matrices& b, const Matrices& d, int count) {
    describe(a_, a, count);
    describe(b_, b, count);
    describe(d_, d, count);
  }

  static void describe(cublasLtMatrixLayoutOpaque_t& layout, const Matrices& stack, int32_t count) {
    const auto [rows, columns, column_stride, transposed] = stack;
    check(cublasLtMatrixLayoutInit(&layout, CUDA_R_16F, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                   column_stride),
          "cublasLtMatrixLayoutInit");
    const int64_t matrix_stride = columns * column_stride;
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value),
            "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix_stride);
  }

  void choose_algorithm() {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    cublasLtMatmulHeuristicResult_t found{};
    int number = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, &product_, &a_, &b_, &d_, &d_, &preference, 1, &found, &number),
          "cublasLtMatmulAlgoGetHeuristic");
    GLUON_CHECK(number == 1, "kernels: cuBLAS has no algorithm for a product of the fused step");
    algorithm_ = found.algo;
  }

  cublasLtHandle_t handle_;
  cublasLtMatmulDescOpaque_t product_;
  cublasLtMatrixLayoutOpaque_t a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_;
};

// Where a piece's square matrices lie in the workspace, behind what cuBLAS takes.
struct Memory {
  int64_t square_bytes, sums, end;

  Memory(const PolarPiece& piece, int64_t begin) {
    const int side = std::min(piece.rows, piece.columns), stride = static_cast<int>(round_up(side, 8));
    square_bytes = round_up(2 * int64_t{piece.count} * side * stride, 256);
    sums = begin + 3 * square_bytes;
    end = sums + round_up(4 * int64_t{piece.count} * cuda::square_partials(side, stride), 256);
  }
};

// A piece on its way through the iteration.
class Chain {
 public:
  Chain(cublasLtHandle_t handle, PolarPiece& piece, char* workspace, int64_t begin, cudaStream_t stream)
      : piece_(piece),
        side_(std::min(piece.rows, piece.columns)),
        stride_(static_cast<int>(round_up(side_, 8))),
        workspace_(workspace),
        stream_(stream),
        gram_(handle, wide() ? x().transpose() : x(), wide() ? x() : x().transpose(), r(), piece.count,
              piece.stack_count),
        square_(handle, r(), r(), r(), piece.count, piece.stack_count),
        multiply_(handle, wide() ? x() : r(), wide() ? r() : x(), x(), piece.count, piece.stack_count) {
    const Memory memory(piece, begin);
    for (int i = 0; i < 3; ++i) {
      squares_[i] = reinterpret_cast<__half*>(workspace + begin + i * memory.square_bytes);
    }
    sums_ = reinterpret_cast<float*>(workspace + memory.sums);
  }

  // W = R = X X^T, or X^T X.
  void make_gram() {
    w_ = 0;
    gram_.run(1, piece_.x, piece_.x, 0, squares_[0], squares_[0], workspace_, stream_);
  }

  // All but the constant. R stays for the last square's addend, the other two buffers take turns.
  void make_square(const ExpandedSquare& square) {
    const __half* w = squares_[w_];
    w_ = w_ == 1 ? 2 : 1;
    const auto factor = static_cast<float>(square.square), addend = static_cast<float>(square.addend);
    square_.run(factor, w, w, addend, addend == 0 ? squares_[w_] : squares_[0], squares_[w_], workspace_, stream_);
  }

  // X <- W X, or X W.
  void multiply() {
    const __half *left = wide() ? piece_.x : squares_[w_], *right = wide() ? squares_[w_] : piece_.x;
    multiply_.run(1, left, right, 0, piece_.other, piece_.other, workspace_, stream_);
    std::swap(piece_.x, piece_.other);
  }

  cuda::SquareStack w() const { return {squares_[w_], piece_.count, side_, stride_, sums_}; }

 private:
  bool wide() const { return piece_.rows <= piece_.columns; }
  Matrices x() const { return {piece_.columns, piece_.rows, piece_.columns}; }
  Matrices r() const { return {side_, side_, stride_}; }

  PolarPiece& piece_;
  int side_, stride_;
  char* workspace_;  // its beginning is cuBLAS's
  cudaStream_t stream_;
  Product gram_, square_, multiply_;
  std::array<__half*, 3> squares_{};
  float* sums_ = nullptr;
  int w_ = 0;
};

static_assert(kMostPieces <= cuda::kMaxSquareStacks);

using Chains = std::vector<std::unique_ptr<Chain>>;

std::vector<cuda::SquareStack> squares_of(const Chains& chains) {
  std::vector<cuda::SquareStack> squares;
  for (const auto& chain : chains) squares.push_back(chain->w());
  return squares;
}

class PortablePolar : public PolarStage {
 public:
  PortablePolar(std::vector<PolarStep> steps, double safety) : steps_(std::move(steps)), safety_(safety) {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    handle_.reset(handle);
  }

  bool moves_parameters(int64_t) const override { return false; }

  int64_t workspace_bytes(std::span<const PolarPiece> pieces) const override {
    int64_t bytes = kProductBytes;
    for (const PolarPiece& piece : pieces) bytes = Memory(piece, bytes).end;
    return bytes;
  }

  void run(std::span<PolarPiece> pieces, void* workspace, int64_t bytes, cudaStream_t stream) const override {
    GLUON_CHECK(bytes >= workspace_bytes(pieces), "kernels: the polar iteration needs ", workspace_bytes(pieces),
                " bytes of workspace, got ", bytes);
    Chains chains;
    int64_t begin = kProductBytes;
    for (PolarPiece& piece : pieces) {
      chains.push_back(std::make_unique<Chain>(handle_.get(), piece, static_cast<char*>(workspace), begin, stream));
      begin = Memory(piece, begin).end;
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) run_step(chains, steps_[i], i == 0, stream);
  }

 private:
  // The first step works with s R and multiplies X by s Z, so that X itself needs no pass of its own.
  void run_step(const Chains& chains, const PolarStep& step, bool first, cudaStream_t stream) const {
    const double shift = stored_shift(step, first);
    for (const auto& chain : chains) chain->make_gram();
    if (first) check(cuda::measure_squares(squares_of(chains), stream), "measure_squares");
    finish(chains, shift, first ? 2 : 0, 0, stream);
    const std::vector<ExpandedSquare> squares = expand(step, shift);
    for (std::size_t i = 0; i < squares.size(); ++i) {
      for (const auto& chain : chains) chain->make_square(squares[i]);
      const int power = first && i + 1 == squares.size() ? 1 : 0;
      finish(chains, squares[i].constant, power, power, stream);
    }
    for (const auto& chain : chains) chain->multiply();
  }

  // W <- s^power W + s^identity_power identity I.
  void finish(const Chains& chains, double identity, int power, int identity_power, cudaStream_t stream) const {
    const auto multiple = static_cast<float>(identity);
    if (power > 0) {
      const cuda::SquareScale scale{safety_, power, multiple, identity_power};
      check(cuda::scale_squares(squares_of(chains), scale, stream), "scale_squares");
    } else if (multiple != 0) {
      check(cuda::add_identity(squares_of(chains), multiple, stream), "add_identity");
    }
  }

  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };

  std::vector<PolarStep> steps_;
  double safety_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
};

}  // namespace

std::unique_ptr<PolarStage> portable_polar(std::vector<PolarStep> steps, double safety) {
  return std::make_unique<PortablePolar>(std::move(steps), safety);
}

}  // namespace gluon::kernels
