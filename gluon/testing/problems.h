// Objectives with layer-wise smoothness constants in closed form, to test theorems and optimizers.
//
//   f(X) = sum_i f_i(X_i)         each f_i in float64 on an m x n matrix, <x, y> = tr(x^T y)
//
//   f_i                            gradient           L0                     L1              infimum
//   Quadratic    <(x-A)H, x-A>/2   (x-A) H            |H| below              0               0
//   Ridge        exp(<C, x>)       C exp(<C, x>)      0                      |C|* / ln 2     0
//   Ridge        cosh(<C, x>)      C sinh(<C, x>)     3 |C|*^2 / (4 ln 2)    |C|* / ln 2     1
//
// L0 and L1 are those of the paper's assumption "layer-wise (L0, L1)-smoothness",
//
//   |grad_i f(X) - grad_i f(Y)|* <= (L0_i + L1_i |grad_i f(X)|*) |X_i - Y_i|,
//
// for pairs no farther apart than a step of theorem 1 (its proof uses no others); they are the smallest possible.
// f is a sum because the assumption requires it: X_i = Y_i makes grad_i f a function of X_i alone. H is diagonal
// and positive, with |H| = max { |zH|* : |z| = 1 }:
//
//   spectral  sum of the min(m, n) largest h_j     euclidean  max h_j      scaled(c,N)  |H| of N, over c^2
//   max_entry m tr H           columns  tr H       rows       m max h_j

#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/lmo/norm.h"

namespace gluon {

/// L0 and L1 of one layer, valid for pairs with |X_i - Y_i| <= distance.
struct Smoothness {
  double l0 = 0;
  double l1 = 0;
  double distance = std::numeric_limits<double>::infinity();
};

/// f_i: immutable; x is (m, n), float64.
class LayerObjective {
 public:
  virtual ~LayerObjective() = default;

  virtual double value(const at::Tensor& x) const = 0;
  virtual at::Tensor gradient(const at::Tensor& x) const = 0;
  virtual double infimum() const = 0;

  /// The constants for theorem 1, as in the table above.
  virtual Smoothness smoothness(const Norm& norm) const = 0;

  /// The largest mu with |grad|*^2 >= 2 mu (f_i - infimum), Polyak-Lojasiewicz; 0 when there is none.
  virtual double pl_constant(const Norm& norm) const = 0;
};

/// Its constants are known for the norms of gluon/lmo/norm.h, by name; throws InputError for others.
class Quadratic : public LayerObjective {
 public:
  /// `minimiser` is A (m, n), `curvature` the diagonal of H (n). Throws InputError unless they fit and H > 0.
  Quadratic(const at::Tensor& minimiser, const at::Tensor& curvature);

  double value(const at::Tensor& x) const override;
  at::Tensor gradient(const at::Tensor& x) const override;
  double infimum() const override { return 0; }
  Smoothness smoothness(const Norm& norm) const override;
  double pl_constant(const Norm& norm) const override;

  /// A z (m, n) with |zH|* = L0 |z|. From A + z, theorem 1 reaches A in one step.
  at::Tensor stiffest_direction(const Norm& norm) const;

 private:
  at::Tensor minimiser_;
  at::Tensor curvature_;
};

/// exp(<C, x>) or cosh(<C, x>).
class Ridge : public LayerObjective {
 public:
  enum Kind { kExponential, kCosh };

  /// `slope` is C (m, n). Throws InputError when it is zero.
  Ridge(Kind kind, const at::Tensor& slope);

  double value(const at::Tensor& x) const override;
  at::Tensor gradient(const at::Tensor& x) const override;
  double infimum() const override { return kind_ == kCosh ? 1 : 0; }
  Smoothness smoothness(const Norm& norm) const override;
  double pl_constant(const Norm& norm) const override;

 private:
  Kind kind_;
  at::Tensor slope_;
};

/// f, a sum of layer objectives, with a starting point.
struct Problem {
  std::vector<std::shared_ptr<const LayerObjective>> objectives;  // one per layer
  std::vector<at::Tensor> start;                                  // (m, n) float64

  /// Fresh parameters "layer0", "layer1", ... of role hidden at the starting point, for gluon::Optimizer.
  std::vector<Layer> layers() const;

  /// f at the layers' parameters.
  double value(std::span<const Layer> layers) const;

  /// Sets the gradient of every parameter, as loss.backward() would.
  void write_gradients(std::span<const Layer> layers) const;

  double infimum() const;

  /// The largest mu with sum_i |grad_i|*^2 >= 2 mu (f - infimum); 0 when there is none. One norm per layer.
  double pl_constant(std::span<const NormPtr> norms) const;
};

/// A random problem with one layer per shape and constants that differ between layers; one seed, one problem.
/// `name` is "quadratic", "exponential", "cosh", or "mixed" for the three in turn. Throws InputError on others.
Problem make_problem(std::string_view name, std::span<const MatrixShape> shapes, uint64_t seed = 0);

}  // namespace gluon
