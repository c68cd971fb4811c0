// Norm: how the size of a layer is measured, and the linear minimization oracle (LMO) that follows from it.
//
// For a norm |.| on m x n matrices with the inner product <X, Y> = tr(X^T Y):
//
//   dual_norm(g) = |g|* = max { <g, z> : |z| <= 1 }
//   lmo(g)       = argmin { <g, z> : |z| <= 1 }            it points DOWNHILL
//
// Four identities tie the three together; gluon/testing/norm_identities.h checks them for any norm, g != 0, a > 0:
//
//   <g, lmo(g)> = -|g|*       the oracle reaches the dual norm
//   |lmo(g)| = 1              on the boundary of the ball
//   lmo(a g) = lmo(g)         only the direction of the gradient counts
//   <g, x> <= |g|* |x|        Hoelder's inequality
//
// and lmo(0) = 0: a layer without a gradient does not move. A norm with an inexact orthogonalizer inside
// satisfies the first two to that orthogonalizer's accuracy.
//
//   name              |x|                    |g|*                       lmo(g)                    |lmo(g)|_F
//   spectral          sigma_max              sum of singular values     -U V^T                    sqrt(min(m, n))
//   max_entry         max |x_ij|             sum |g_ij|                 -sign(g)                  sqrt(m n)
//   euclidean         Frobenius              Frobenius                  -g / |g|                  1
//   columns           max l2 of a column     sum of the columns' l2     -each column / its l2     sqrt(n)
//   rows              max l2 of a row        sum of the rows' l2        -each row / its l2        sqrt(m)
//   scaled(c,NAME)    c |x|                  |g|* / c                   lmo(g) / c                that of NAME / c
//
// The last column holds for g without a zero singular value, entry, column or row.
//
// (paper: section "Special cases of the LMO framework"; max_entry is 1->inf, columns 1->2, rows 2->inf.)

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/core/lmo_form.h"

namespace gluon {

/// Immutable; the public functions check their argument, never change it, and compute half precision in float32.
class Norm {
 public:
  virtual ~Norm() = default;

  /// |x| of each matrix: (b, m, n) -> (b). Throws InputError unless x is a floating point tensor of rank 3.
  at::Tensor norm(const at::Tensor& x) const;

  /// |g|* of each matrix: (b, m, n) -> (b).
  at::Tensor dual_norm(const at::Tensor& g) const;

  /// The minimiser of <g, z> over the unit ball for each matrix: (b, m, n) -> (b, m, n), dtype kept.
  at::Tensor lmo(const at::Tensor& g) const;

  /// The Frobenius length of lmo(g) for m x n matrices g of full rank without zeros: a number of the norm and the shape
  /// alone, exact whatever the orthogonalizer. The default is the length of one random matrix's LMO, for norms under
  /// which all have the same.
  virtual double lmo_length(int64_t rows, int64_t cols) const;

  /// The LMO as a formula, for executors that can compute it themselves.
  virtual LmoForm lmo_form() const { return {}; }

  /// The name that make_norm() turns back into this norm.
  virtual std::string name() const = 0;

 protected:
  // What a norm implements; the argument is (b, m, n), float32 or float64.
  virtual at::Tensor compute_norm(const at::Tensor& x) const = 0;
  virtual at::Tensor compute_dual_norm(const at::Tensor& g) const = 0;
  virtual at::Tensor compute_lmo(const at::Tensor& g) const = 0;
};

using NormPtr = std::shared_ptr<const Norm>;

/// The orthogonalizer inside "spectral" when none is named: the cheapest one whose runs end with the loss of runs with
/// an exact one, within the noise of the seed (docs/orthogonalization.md).
inline constexpr std::string_view kDefaultOrthogonalizer = "polar_squares:9";

/// The norm called `name` for matrices of `shape`. Beyond the table above:
///
///   spectral(ORTHOGONALIZER)    the spectral norm with another orthogonalizer, e.g. spectral(svd)
///   scaled(EXPRESSION,NAME)     the factor may be an expression of m, n and kernel: scaled(sqrt(n/m),spectral)
///
/// `orthogonalizer` is used for "spectral" without an argument. Throws InputError that lists what is allowed.
NormPtr make_norm(std::string_view name, const MatrixShape& shape = {},
                  std::string_view orthogonalizer = kDefaultOrthogonalizer);

/// The names of all norms without arguments, spectral included.
std::vector<std::string> norm_names();

}  // namespace gluon
