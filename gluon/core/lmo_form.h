// LmoForm: what a norm tells an executor about its LMO, so that a GPU can compute whole steps without calling the norm.
//
//   kind     lmo(g)
//   kSign    -factor sign(g)
//   kPolar   -factor polar(g), by the quintic iteration with these coefficients; half precision is accurate enough
//   kOther   only Norm::lmo() knows

#pragma once

#include <vector>

namespace gluon {

/// One step s -> a s + b s^3 + c s^5 on the singular values.
struct Quintic {
  double a = 0, b = 0, c = 0;

  bool operator==(const Quintic&) const = default;
};

struct LmoForm {
  enum class Kind { kOther, kSign, kPolar };

  Kind kind = Kind::kOther;
  double factor = 1;
  std::vector<Quintic> coefficients{};  // kPolar: one row per step
  double safety = 1;                    // kPolar: the first row expects singular values in [0, 1 / safety]
};

}  // namespace gluon
