// Initial weights on the norm ball, in the manner of Scion.
//
// A random point of the sphere |X| = ball is ball lmo(N) for Gaussian N: an orthogonal matrix for the spectral norm,
// random signs for max_entry, random unit rows for rows. Biases (vectors whose name ends in "bias") start at zero;
// other vectors and scalars, such as the gains of a normalization, keep their values. Where a rule has a sphere |X|_F = R
// matrices start at R Norm(lmo(N)). Unlike Scion's own code, which orthogonalizes a convolution tap by tap, the flattened
// matrix is orthogonalized as a whole.

#pragma once

#include <cstdint>
#include <span>

#include "gluon/geometry/geometry.h"

namespace gluon {

struct InitializeOptions {
  double ball = 1;  // |X| at the start, for rules that have no ball or sphere of their own
  uint64_t seed = 0;
};

/// Overwrites the parameters of all layers that have a norm; layers left to AdamW stay as they are. The same
/// seed gives the same weights, whatever the order of the layers. Throws InputError on a layer without a rule.
void initialize(std::span<const Layer> layers, const Geometry& geometry, const InitializeOptions& options = {});

/// Brings the matrices of rules with a sphere onto it, |X|_F = R, and leaves all others: a model's own start then trains
/// the same at every scale from its first gradient on. Matrices of zeros become random points R Norm(lmo(N)), as above.
void start_on_spheres(std::span<const Layer> layers, const Geometry& geometry, uint64_t seed = 0);

}  // namespace gluon
