// Sample: trajectory smoothness of one layer at one step, and the quantities it was made of.
//
//   Lhat_i[k] = |g_{k+1} - g_k|* / |X_{k+1} - X_k|                     (paper: trajectory smoothness)
//
// in the layer's norm and its dual. The paper's hypothesis is Lhat_i[k] ~ L0_i + L1_i |g_{k+1}|*; gluon/fit/fit.h
// finds L0 and L1. recorder.h makes samples, trajectory.h stores them and reads them.

#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gluon {

/// Where g_k and g_{k+1} come from.
enum class Estimator {
  kConsecutive,  // each step's own batch, as in the paper's stochastic runs: mostly the noise of the batches
  kFull,         // the whole training set for both: deterministic runs
  kSameBatch,    // the NEXT step's batch at the old and at the new point: curvature without the noise
  kUnknown,      // not recorded, as in the authors' logs
};

inline constexpr std::array<std::string_view, 4> kEstimatorNames = {"consecutive", "full", "same_batch", "unknown"};

inline std::string_view estimator_name(Estimator estimator) {
  return kEstimatorNames[static_cast<std::size_t>(estimator)];
}

/// A value that was not measured is NaN.
struct Sample {
  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

  int64_t step = 0;                   // k + 1: how many steps had been taken at g_{k+1}
  double gradient_change = kMissing;  // |g_{k+1} - g_k|*
  double displacement = kMissing;     // |X_{k+1} - X_k|
  double smoothness = kMissing;       // Lhat = gradient_change / displacement
  double gradient = kMissing;         // |g_{k+1}|*
  double momentum = kMissing;         // |m_k|*, the input of the step's LMO
  double alignment = kMissing;        // -<g_k, d> / (|g_k|* |d|), d = X_{k+1} - X_k: 1 is steepest descent
  double radius = kMissing;           // t_k, schedule included; AdamW has none
};

/// All measured values, in the order of the columns of smoothness.csv.
inline constexpr std::array<double Sample::*, 7> kSampleValues = {
    &Sample::gradient_change, &Sample::displacement, &Sample::smoothness, &Sample::gradient,
    &Sample::momentum,        &Sample::alignment,    &Sample::radius};

struct LayerTrajectory {
  std::string layer;        // the matrix's name, such as "transformer.h.0.attn.c_q.weight"
  std::string group;        // role of the layer, the key of --radius: "hidden", "embedding", ...
  std::string norm;         // the norm that measured, such as "scaled(2,spectral)"
  std::string dual_method;  // how its dual was computed: "exact", or the orthogonalizer with steps
  std::vector<Sample> samples;
};

struct Trajectory {
  Estimator estimator = Estimator::kUnknown;
  std::vector<LayerTrajectory> layers;
};

}  // namespace gluon
