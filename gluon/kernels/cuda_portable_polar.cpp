// The portable PolarStage. cuBLAS adds no multiple of the identity and has one factor for all matrices of a call, so
// small kernels (cuda/square_stacks.h) work on the square matrices between its products.

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "gluon/kernels/cublas_product.h"
#include "gluon/kernels/cuda/square_stacks.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/half_plan.h"
#include "gluon/kernels/polar_stage.h"

namespace gluon::kernels {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

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
        gram_(handle, wide() ? x().transpose() : x(), wide() ? x() : x().transpose(), r(), choice()),
        square_(handle, r(), r(), r(), choice()),
        multiply_(handle, wide() ? x() : r(), wide() ? r() : x(), x(), choice()) {
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
  CublasMatrices x() const { return {CUDA_R_16F, piece_.columns, piece_.rows, piece_.columns, piece_.count}; }
  CublasMatrices r() const { return {CUDA_R_16F, side_, side_, stride_, piece_.count}; }

  // The algorithm is the one for the whole stack and never divides a sum: a matrix gets the same bits however many
  // others share the call.
  CublasProduct::Choice choice() const { return {.count = piece_.stack_count, .divides_sums = false}; }

  PolarPiece& piece_;
  int side_, stride_;
  char* workspace_;  // its beginning is cuBLAS's
  cudaStream_t stream_;
  CublasProduct gram_, square_, multiply_;
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
    int64_t bytes = CublasProduct::kWorkspaceBytes;
    for (const PolarPiece& piece : pieces) bytes = Memory(piece, bytes).end;
    return bytes;
  }

  void run(std::span<PolarPiece> pieces, void* workspace, int64_t bytes, cudaStream_t stream) const override {
    GLUON_CHECK(bytes >= workspace_bytes(pieces), "kernels: the polar iteration needs ", workspace_bytes(pieces),
                " bytes of workspace, got ", bytes);
    Chains chains;
    int64_t begin = CublasProduct::kWorkspaceBytes;
    for (PolarPiece& piece : pieces) {
      chains.push_back(std::make_unique<Chain>(handle_.get(), piece, static_cast<char*>(workspace), begin, stream));
      begin = Memory(piece, begin).end;
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) run_step(chains, i, stream);
  }

 private:
  // The first step works with s R and multiplies X by s Z, so that X itself needs no pass of its own.
  void run_step(const Chains& chains, std::size_t index, cudaStream_t stream) const {
    const bool first = index == 0;
    const double shift = stored_shift(steps_, index, /*updates_last=*/false);
    for (const auto& chain : chains) chain->make_gram();
    if (first) check(cuda::measure_squares(squares_of(chains), stream), "measure_squares");
    finish(chains, shift, first ? 2 : 0, 0, stream);
    const std::vector<ExpandedSquare> squares = expand(steps_[index], shift);
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
