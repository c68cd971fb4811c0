// LmoForm: what a norm tells an executor about its LMO, so that a GPU can compute whole steps without calling the norm.
//
//   kind     lmo(g)
//   kSign    -factor sign(g)
//   kPolar   -factor polar(g), by the iteration with these steps; half precision is accurate enough
//   kOther   only Norm::lmo() knows
//
// A step of the iteration multiplies X by a polynomial Z of R = X X^T, so that singular values move as s -> s Z(s^2).
// Z takes one product for every square:
//
//   W = R + shift I,    for every square  W <- factor W^2 + offset I,    Z = W + linear R
//
// One square makes a quintic, k squares make a polynomial of degree 2^(k+1) + 1.

#pragma once

#include <vector>

namespace gluon {

struct Square {
  double factor = 0, offset = 0;

  bool operator==(const Square&) const = default;
};

struct PolarStep {
  double shift = 0;
  std::vector<Square> squares{};  // at least one
  double linear = 0;

  bool operator==(const PolarStep&) const = default;

  /// Z(x).
  double multiplier(double x) const {
    double w = x + shift;
    for (const Square& square : squares) w = square.factor * w * w + square.offset;
    return w + linear * x;
  }
};

/// A square as the polynomial  square W^2 + addend R + constant I.
struct ExpandedSquare {
  double square = 0, addend = 0, constant = 0;
};

/// The squares of a step, for a caller that stores R + stored_shift I instead of R: with stored_shift == step.shift the
/// first one squares what is stored, with 0 it squares R and takes the shift from its addend. Addends are multiples of
/// what is stored.
inline std::vector<ExpandedSquare> expand(const PolarStep& step, double stored_shift = 0) {
  std::vector<ExpandedSquare> expanded;
  for (const auto& [factor, offset] : step.squares) expanded.push_back({factor, 0, offset});
  const double missing = step.shift - stored_shift;
  ExpandedSquare &first = expanded.front(), &last = expanded.back();
  first.addend = 2 * missing * first.square;
  first.constant += first.square * missing * missing;
  last.addend += step.linear;
  last.constant -= step.linear * stored_shift;
  return expanded;
}

struct LmoForm {
  enum class Kind { kOther, kSign, kPolar };

  Kind kind = Kind::kOther;
  double factor = 1;
  std::vector<PolarStep> steps{};  // kPolar
  double safety = 1;               // kPolar: the first step expects singular values in [0, 1 / safety]
};

}  // namespace gluon
