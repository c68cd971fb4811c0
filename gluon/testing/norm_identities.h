// Checks the identities of a Norm and its LMO; works with any test framework.
//
// With <x, y> = tr(x^T y), for every batch g and every a > 0:
//
//   <g, lmo(g)> = -|g|*         lmo(a g) = lmo(g)           |a g| = |a| |g|           |g + y| <= |g| + |y|
//   |lmo(g)| = 1                lmo(0) = 0                  |a g|* = |a| |g|*         |g + y|* <= |g|* + |y|*
//   <g, x> <= |g|* |x|, with equality at x = -lmo(g)        |g|, |g|* > 0 unless g = 0, where all three are 0
//
// and what the optimizer relies on: shapes and dtypes; the argument is unchanged and not returned; a batch gives
// the same results as its matrices one by one; strides have no influence. Inner products are computed in float64
// and every a is a power of two, so that rounding in the checker is not attributed to the norm.
//
//   for (const gluon::NamedBatch& input : gluon::identity_inputs(at::kFloat))
//     for (const std::string& violation : gluon::norm_identity_violations(my_norm, input.batch))
//       ADD_FAILURE() << input.name << ": " << violation;
//
// See gluon/lmo/norm.h for what a norm implements.

#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "gluon/lmo/norm.h"

namespace gluon {

struct IdentityOptions {
  double tolerance = 1e-5;  // largest relative error; an inexact orthogonalizer needs its own accuracy here
  uint64_t seed = 0;        // of the random matrices x and y above
};

/// One sentence per identity that `norm` violates on the batch g (b, m, n): the norm's name, the identity, the
/// worst matrix, expected and actual value and relative error. Empty when all hold. Throws InputError unless g is a
/// nonempty floating point tensor of rank 3 with finite entries.
std::vector<std::string> norm_identity_violations(const Norm& norm, const at::Tensor& g,
                                                  const IdentityOptions& options = {});

struct NamedBatch {
  std::string name;
  at::Tensor batch;  // (b, m, n)
};

/// Batches that reveal typical mistakes: tall, wide, square, 1 x n, n x 1, 1 x 1, rank-deficient, zero,
/// mixed zero and nonzero, zero rows and columns, entries near 1e-30 and 1e30, one large entry among tiny
/// ones. The same numbers in every call. Throws InputError for a type that cannot hold 1e30 (float16).
std::vector<NamedBatch> identity_inputs(at::ScalarType dtype);

}  // namespace gluon
