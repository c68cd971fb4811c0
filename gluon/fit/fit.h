// Fit: L0 and L1 of a layer from its smoothness samples.
//
// The paper's hypothesis is Lhat[k] ~ a_k = L0 + L1 |g_{k+1}|*. The fit is the exact minimiser of
//
//   sum (Lhat - a)^2 + lambda sum max(0, Lhat - a)^2          over L0 >= 0, L1 >= 0
//
// The hinge pulls the line above the samples, since (L0, L1)-smoothness is an upper bound: lambda = 5 gives the
// constants of the authors' figures, lambda = 0 is least squares and gives their relative errors. The loss is convex,
// piecewise quadratic and continuously differentiable; fit.cpp minimises it by a Newton method that ends after
// finitely many passes over the samples, each O(samples), without sorting.
//
// Two guards against constants that mean nothing (docs/tuning.md has the measurements):
//
//   the start   a layer's first samples are left out while Lhat > kOutlier a, with a of the line through its last three
//               quarters: in the first step a layer may have moved by its weight decay alone, and then Lhat is 30 to 600
//               times too large. skip_first = 0 takes all samples, as the paper does.
//   a doubt     most samples are below a / 2, half of the line: something other than the samples decides where it lies
//
// Place in the flow: smoothness/trajectory.h -> fit -> radius |g|* / (L0 + L1 |g|*), theorem 1.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/smoothness/sample.h"

namespace gluon {

inline constexpr double kOutlier = 3;  // docs/tuning.md: from 3 to 5 the radii are the same

struct FitOptions {
  double lambda = 5;                    // weight of the samples above the line, in [0, 1e6]
  bool l0_zero = false;                 // keep L0 at 0 and fit L1 alone
  std::optional<int64_t> skip_first{};  // leave out this many first samples of each layer; none: by the rule above

  void validate() const;
};

struct Fit {
  double l0 = 0;
  double l1 = 0;
  double mse_rel = 0;     // mean of ((Lhat - a) / Lhat)^2 over the samples with Lhat > 0; 0 when there are none
  double violations = 0;  // share of samples with Lhat > a, rounding aside
  int64_t samples = 0;    // number of samples fitted
  int64_t left_out = 0;   // first samples that the rule left out
  std::string doubt{};    // why the constants mean nothing, one clause; empty when nothing speaks against them
};

/// The minimiser over samples (smoothness[k], gradient[k]). If all gradients are equal, only L0 + L1 |g|* is
/// determined and L0 is set to 0. Throws InputError on different lengths, fewer than 2 samples, a sample that is not
/// finite or negative, or gradients that are all zero.
Fit fit_smoothness(std::span<const double> smoothness, std::span<const double> gradient,
                   const FitOptions& options = {});

struct LayerFit {
  std::string layer;
  std::string group;
  Fit fit;
  int64_t unmoved = 0;  // samples left out because the layer had not moved: Lhat is 0/0 there
  // Medians over exactly the samples that were fitted.
  double gradient = Sample::kMissing;  // |g|*
  double radius = Sample::kMissing;    // the radius used; missing when no sample has it
};

struct UnfittedLayer {
  std::string layer;
  std::string group;
  std::string reason;
};

struct TrajectoryFit {
  Estimator estimator = Estimator::kUnknown;
  std::vector<LayerFit> layers;
  std::vector<UnfittedLayer> unfitted;
};

/// Fits each layer by itself; those that cannot be fitted are listed with the reason. Throws InputError only on bad
/// options.
TrajectoryFit fit_trajectory(const Trajectory& trajectory, const FitOptions& options = {});

}  // namespace gluon
