// What a step has to know of whole matrices before update.h can move them, one launch per function for all layers of a
// shape:
//
//   fold_directions()   v <- beta v + (1 - beta) S(D / unit)                   rows 2 bytes per entry, entries 10
//                       partial sums of |D|^2 and |H|^2
//   measure_spheres()   partial sums of <X, X>, <X, H> and <H, H>              6 bytes per entry, with entries' v 10
//   make_factors()      keep and move of each matrix
//
// A heading is as long as its direction, s' = s |D| / |H| (normalize/normalize.h), and a matrix on a sphere is brought
// back to it (update/sphere_step.h):
//
//   sphere R:   q^2 = |X| ? 1 + 2 a t + t^2 : t^2,   a = <X, U> / (|X| |U|),  U = s' H
//               keep = R / (|X| q),  move = s' t R / (|U| q)
//   otherwise   keep = 1 - decay t,  move = s' t
//
// Sums are in float64, in an order that depends on shapes alone. In the flow: LMO direction -> heading -> update.

#pragma once

#include "gluon/kernels/cuda/update.h"

namespace gluon::cuda {

/// The pointers are to device memory; null: the step has no second moments, or no sphere.
struct StepSums {
  double* directions = nullptr;  // (c, direction_partials(), 2)
  double* spheres = nullptr;     // (c, sphere_partials(), 3)
};

/// Partial sums per matrix of `size` entries.
int64_t direction_partials(const SecondMoments& second, int64_t size);
int64_t sphere_partials(int64_t size);

/// Nothing changes in a step that the verdict skips. These functions return cudaErrorInvalidValue for missing pointers,
/// negative sizes, and second moments whose columns do not divide the size.
cudaError_t fold_directions(const MomentumStep& step, const __half* directions, const SecondMoments& second,
                            double* sums, cudaStream_t stream);
cudaError_t measure_spheres(const MomentumStep& step, const __half* directions, const ParameterUpdate& update,
                            double* sums, cudaStream_t stream);

/// Writes factors (c), for update.factors, from update's radii, decay and direction_factor; `radius` is R.
cudaError_t make_factors(const MomentumStep& step, const ParameterUpdate& update, const StepSums& sums, double radius,
                         StepFactors* factors, cudaStream_t stream);

}  // namespace gluon::cuda
