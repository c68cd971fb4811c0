#include <utility>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/polar_stage.h"

namespace gluon::kernels {
namespace {

class HopperPolar : public PolarStage {
 public:
  HopperPolar(std::vector<PolarStep> steps, double safety) : steps_(std::move(steps)), safety_(safety) {}

  bool moves_parameters(int64_t columns) const override { return columns % 64 == 0; }

  int64_t workspace_bytes(std::span<const PolarPiece> pieces) const override {
    return static_cast<int64_t>(cuda::orthogonalize_workspace(stacks_of(pieces), options()));
  }

  void run(std::span<PolarPiece> pieces, void* workspace, int64_t bytes, cudaStream_t stream) const override {
    check(cuda::orthogonalize(stacks_of(pieces), options(), workspace, static_cast<std::size_t>(bytes), stream),
          "orthogonalize");
    for (PolarPiece& piece : pieces) std::swap(piece.x, piece.other);
  }

 private:
  cuda::OrthogonalizeOptions options() const { return {.steps = steps_, .safety = safety_}; }

  static std::vector<cuda::OrthogonalizeStack> stacks_of(std::span<const PolarPiece> pieces) {
    std::vector<cuda::OrthogonalizeStack> stacks;
    for (const PolarPiece& piece : pieces) {
      const int64_t size = int64_t{piece.rows} * piece.columns;
      stacks.push_back({.count = piece.count,
                        .rows = piece.rows,
                        .columns = piece.columns,
                        .input = piece.x,
                        .input_type = cuda::ElementType::kFloat16,
                        .row_stride = piece.columns,
                        .matrix_stride = size,
                        .output = {piece.other, piece.columns, size},
                        .target = piece.target});
    }
    return stacks;
  }

  std::vector<PolarStep> steps_;
  double safety_;
};

}  // namespace

std::unique_ptr<PolarStage> hopper_polar(std::vector<PolarStep> steps, double safety) {
  return std::make_unique<HopperPolar>(std::move(steps), safety);
}

}  // namespace gluon::kernels
