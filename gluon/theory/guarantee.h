// Guarantee: what one theorem of the paper promises for given constants, as numbers and as readable text.
//
//   constants of the layers, Delta0  ->  K(eps), the bound after K iterations, radii, momentum
//
// Every theorem is a function of theorems.h that returns a Guarantee. All are pure functions of double.
// L0_i and L1_i are those of the paper's assumption "layer-wise (L0, L1)-smoothness":
//
//   |grad_i f(X) - grad_i f(Y)|* <= (L0_i + L1_i |grad_i f(X)|*) |X_i - Y_i|.
//
// Taken literally it holds only for sums f = sum_i f_i(X_i): with Y_i = X_i it says that grad_i f does not depend
// on the other layers. The proofs use it for X = X_k and every Y on the segment to X_{k+1}, because their descent lemma
// integrates the gradient along it (the paper's footnote names only the end, Y = X_{k+1}), and theorem 3 also for
// Y = X_{k-1}. A fit of L0 and L1 along a run knows the ends alone: X = X_{k+1} and Y = X_k.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::theory {

struct LayerConstants {
  double l0 = 0;
  double l1 = 0;
  std::optional<double> t = std::nullopt;  // theorem 3's t_i; 1 / (12 L1) by default
  double noise_factor = 1;                 // theorem 3; above 1 for norms that are not Euclidean, see theorems.h
  std::string name{};                      // for errors; without one they give the layer's number
};

struct Constants {
  std::vector<LayerConstants> layers;
  double initial_gap = 0;  // Delta0 = f(X_0) - inf f

  double sum_l0() const;
  double max_l0() const;
  double max_l1() const;
  bool l1_is_zero() const;  // in all layers

  /// "layer 'head'", or "layer 2" when it has no name, for layers[1].
  std::string layer_text(std::size_t index) const;

  /// Throws InputError, which starts with `who`, unless there is a layer, Delta0 >= 0, and L0, L1 >= 0, not both 0.
  void validate(std::string_view who) const;
};

struct Guarantee {
  std::string theorem;                   // "theorem 1"
  std::string promise;                   // "min over k < K of sum_i |grad_i f(X_k)|* <= eps"
  std::string formula;                   // "K = ceil(2 Delta0 sum L0 / eps^2 + 2 Delta0 max L1 / eps)"
  std::string bound_formula;             // the smallest eps the theorem promises after K iterations
  std::vector<double> weights;           // of |grad_i f|* in the promise; empty where f - inf f is promised
  std::vector<std::string> radii;        // per layer, in the form of make_radius()
  std::vector<double> largest_radii;     // per layer, over all gradients (infinity for L1 = 0)
  std::string momentum = "none";         // in the form of make_momentum()
  bool counts_steps = false;             // the promise is about X_K, not about the best of X_0 .. X_{K-1}
  std::function<double(double)> needed;  // eps > 0 -> the real number whose ceiling is K
  std::function<double(double)> bound;   // K >= 1 -> eps

  /// K, the smallest whole number for which the theorem promises `precision`; at least 1 (0 when counts_steps).
  /// Exact below 10^14. Throws InputError unless precision > 0 and K is finite.
  double iterations(double precision) const;
};

}  // namespace gluon::theory
