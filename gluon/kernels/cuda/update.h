// Parameter updates: one launch moves all layers of a shape.
//
//   X_i <- keep_i X_i + move_i H_i            i < c, `size` entries each
//
//   H      the given direction D, or D / (sqrt(v) + eps) where second moments normalise it
//   keep   1 - decay t_i; with a cautious decay 1 for the entries that the step moves away from 0
//   move   t_i s
//
// t_i is the radius, on the device; s is the factor from the given direction to the LMO's (-1 times the width factor
// of the norm); decay is the weight decay, or 1 / rho in the ball of radius rho. A sphere or a normalised direction
// needs factors from whole matrices first: step_factors.h. In the flow: radius -> update. (paper: algorithm "Gluon",
// its last line)

#pragma once

#include "gluon/kernels/cuda/momentum.h"

namespace gluon::cuda {

/// What normalises a direction: see normalize/normalize.h. H is 0 where sqrt(v) + eps is.
struct SecondMoments {
  enum class Kind { kNone, kRows, kEntries } kind = Kind::kNone;
  float* values = nullptr;  // v: (c, size / columns), or (c, size)
  int64_t columns = 0;      // of a matrix
  float beta = 0, eps = 0;
  double unit = 1;  // the RMS entry of a polar factor: v is of D / unit
};

/// X <- keep X + move H
struct StepFactors {
  float keep, move;
};

/// Pointers are to device memory, which is read when the kernels run.
struct ParameterUpdate {
  float* const* parameters = nullptr;  // c pointers
  const float* radii = nullptr;        // (c)
  float direction_factor = -1;         // s
  const float* decay = nullptr;        // one number; null: 0
  bool cautious = false;
  SecondMoments second{};
  const StepFactors* factors = nullptr;  // (c); null: from radii and decay
};

/// Moves the parameters by half precision directions (c, size), 10 bytes per entry, 14 with second moments of entries;
/// `step` gives c, size and verdict. This and the function below return cudaErrorInvalidValue for missing pointers,
/// negative sizes, and second moments whose columns do not divide the size.
cudaError_t update_parameters(const MomentumStep& step, const __half* directions, const ParameterUpdate& update,
                              cudaStream_t stream);

/// Momentum, LMO of max_entry and update of whole layers (the embedding) in one pass of 20 bytes per entry: M_i as in
/// momentum.h, then D_i = sign(input_i). sign(0) is 0, and so is sign(NaN), as in ATen; the momentum keeps the NaN.
/// Takes neither second moments nor factors. (paper: section "Special cases of the LMO framework", 1->inf)
cudaError_t update_by_sign(const MomentumStep& step, const ParameterUpdate& update, cudaStream_t stream);

}  // namespace gluon::cuda
