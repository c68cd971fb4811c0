#include "gluon/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"

namespace gluon {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int64_t kMinSamples = 2;
constexpr int kUsualPasses = 40;  // measured: 3 to 12 with lambda = 5, up to 43 with 1e6
constexpr int kMaxPasses = 500;   // a bound on the time, not reached in 26,000 random data sets

// A line over the samples in units in which both coordinates are at most about 1: level + slope u.
struct Line {
  double level = 0;
  double slope = 0;
};

// Sums of one pass over the samples; r = y - level - slope u, w = 1 + lambda where r > 0, else 1.
struct Sums {
  double residual = 0;    // w r:   minus half the derivative by the level
  double residual_u = 0;  // w r u: minus half the derivative by the slope
  double weight = 0;      // w, w u, w u^2: half the second derivatives
  double weight_u = 0;
  double weight_uu = 0;
  double changes = 0;  // (w - w before)^2: 0 when all samples are on the same side of the line as before

  void add(const Sums& other) {
    residual += other.residual;
    residual_u += other.residual_u;
    weight += other.weight;
    weight_u += other.weight_u;
    weight_uu += other.weight_uu;
    changes += other.changes;
  }
};

// 1 / value up to a factor of 2, exactly representable.
double inverse_unit(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, -std::clamp(exponent, -1000, 1000));
}

class Samples {
 public:
  Samples(std::span<const double> smoothness, std::span<const double> gradient, double y_inverse)
      : smoothness_(smoothness), gradient_(gradient), y_inverse_(y_inverse) {}

  // u = (gradient - centre) * x_inverse.
  void set_units(double centre, double x_inverse) {
    centre_ = centre;
    x_inverse_ = x_inverse;
  }

  double l1(Line line) const { return line.slope * x_inverse_ / y_inverse_; }
  double l0(Line line) const { return line.level / y_inverse_ - l1(line) * centre_; }
  Line through_origin(double l1) const {
    const double slope = l1 * y_inverse_ / x_inverse_;
    return {slope * (centre_ * x_inverse_), slope};
  }

  Sums pass(Line line, Line before, double above) const {
    // Blocks keep rounding errors at the size of a block's sum.
    constexpr std::size_t kBlock = 1024;
    Sums total;
    for (std::size_t begin = 0; begin < smoothness_.size(); begin += kBlock) {
      total.add(block(begin, std::min(begin + kBlock, smoothness_.size()), line, before, above));
    }
    return total;
  }

 private:
  // The order of the sums is left to the compiler, and w comes from the sign of r without a branch, so that vectors
  // are used: a pass over 10 million samples takes 12 ms on an EPYC core, with branches it took 65.
  Sums block(std::size_t begin, std::size_t end, Line line, Line before, double above) const {
    const double* const y_data = smoothness_.data();
    const double* const x_data = gradient_.data();
    const double y_inverse = y_inverse_, x_inverse = x_inverse_, centre = centre_;
    const double middle = 0.5 * (above + 1), half = 0.5 * (above - 1);
    double residual = 0, residual_u = 0, weight = 0, weight_u = 0, weight_uu = 0, changes = 0;
#pragma omp simd reduction(+ : residual, residual_u, weight, weight_u, weight_uu, changes)
    for (std::size_t i = begin; i < end; ++i) {
      const double y = y_data[i] * y_inverse;
      const double u = (x_data[i] - centre) * x_inverse;
      const double r = y - line.level - line.slope * u;
      const double w = middle + std::copysign(half, r);
      const double change = w - (middle + std::copysign(half, y - before.level - before.slope * u));
      residual += w * r;
      residual_u += w * r * u;
      weight += w;
      weight_u += w * u;
      weight_uu += w * u * u;
      changes += change * change;
    }
    return {residual, residual_u, weight, weight_u, weight_uu, changes};
  }

  std::span<const double> smoothness_;
  std::span<const double> gradient_;
  double y_inverse_ = 1;
  double centre_ = 0;
  double x_inverse_ = 1;
};

enum class Free { kSlope, kLevel, kBoth };

// From the current line to the minimum of the quadratic piece it lies on.
Line newton_step(const Sums& sums, Free free) {
  if (free == Free::kSlope) return {0, sums.residual_u / sums.weight_uu};
  if (free == Free::kLevel) return {sums.residual / sums.weight, 0};
  const double mean = sums.weight_u / sums.weight;
  const double variance = sums.weight_uu - mean * sums.weight_u;
  if (!(variance > 0)) return {sums.residual / sums.weight, 0};
  const double slope = (sums.residual_u - mean * sums.residual) / variance;
  return {sums.residual / sums.weight - mean * slope, slope};
}

Line moved(Line line, Line step, double share = 1) {
  return {line.level + share * step.level, line.slope + share * step.slope};
}

// Half the derivative of the loss along `step` is -along(sums, step).
double along(const Sums& sums, Line step) { return sums.residual * step.level + sums.residual_u * step.slope; }

double curvature(const Sums& sums, Line step) {
  return sums.weight * step.level * step.level + 2 * sums.weight_u * step.level * step.slope +
         sums.weight_uu * step.slope * step.slope;
}

// Newton's method with a line search. With D the slope of the loss at the start of a step, the curvature along it is
// at most (1 + lambda) D; a derivative of at most 0.1 D / (1 + lambda) at its end therefore means that the loss fell
// by at least 0.4 D / (1 + lambda). So no piece is visited twice, and as there are finitely many the loop ends with a
// step that moves no sample to the other side of the line: the minimum of the convex loss.
Line minimise(const Samples& samples, double above, Free free, Line line) {
  Sums sums = samples.pass(line, line, above);
  for (int passes = 1; passes < kMaxPasses;) {
    const Line step = newton_step(sums, free);
    // Residuals have errors of kEpsilon times the largest sample, 1. With samples exactly on the line the iteration
    // would not end otherwise.
    const double size = std::abs(line.level) + std::abs(line.slope) + (passes > kUsualPasses ? 1 : 0);
    const double length = std::abs(step.level) + std::abs(step.slope);
    if (length <= 4 * kEpsilon * size) break;
    const double tolerance = 0.1 * along(sums, step) / above;

    double share = 1;
    Line next = moved(line, step);
    Sums after = samples.pass(next, line, above);
    ++passes;
    // The minimum is on the same quadratic piece: one more step removes rounding errors.
    if (after.changes == 0) return moved(next, newton_step(after, free));

    double low = 0;
    double high = 1;
    for (double rise = -along(after, step); rise > tolerance || (share < 1 && rise < -tolerance);
         rise = -along(after, step)) {
      if (passes >= kMaxPasses || (high - low) * length <= 4 * kEpsilon * size) break;
      const double width = high - low;
      (rise > 0 ? high : low) = share;
      share -= rise / curvature(after, step);
      // Newton's steps become short where the curvature falls by the factor lambda.
      const bool creeps = high - low > 0.5 * width && width < 1;
      if (creeps || !(share > low && share < high)) share = 0.5 * (low + high);
      next = moved(line, step, share);
      after = samples.pass(next, line, above);
      ++passes;
    }
    line = next;
    sums = after;
  }
  return line;
}

struct Range {
  double least_gradient = std::numeric_limits<double>::infinity();
  double greatest_gradient = 0;
  double greatest_smoothness = 0;
};

// Why the samples cannot be fitted, as the end of a message; empty when they can, and `range` is then filled.
std::string obstacle(std::span<const double> smoothness, std::span<const double> gradient, Range& range) {
  for (std::size_t i = 0; i < smoothness.size(); ++i) {
    const double y = smoothness[i], x = gradient[i];
    if (!std::isfinite(y) || !std::isfinite(x) || y < 0 || x < 0) {
      return join("samples must be finite and >= 0, got smoothness ", y, " with gradient ", x, " in sample ", i);
    }
    range.least_gradient = std::min(range.least_gradient, x);
    range.greatest_gradient = std::max(range.greatest_gradient, x);
    range.greatest_smoothness = std::max(range.greatest_smoothness, y);
  }
  if (range.greatest_gradient > 0) return "";
  return join("all ", smoothness.size(), " gradients are zero, so L1 is undetermined");
}

double mean_gradient(std::span<const double> gradient, double inverse) {
  double sum = 0;
  for (const double value : gradient) sum += value * inverse;
  return sum / static_cast<double>(gradient.size()) / inverse;
}

struct Constants {
  double l0 = 0;
  double l1 = 0;
};

// The active set has three candidates: L0 = 0, both free, L1 = 0. As Lhat >= 0 and |g|* >= 0, the minimum with one
// constant fixed at 0 has the other >= 0, and a constant that is negative in the free minimum is 0 in the
// constrained one.
Constants solve(std::span<const double> smoothness, std::span<const double> gradient, const Range& range,
                const FitOptions& options) {
  if (range.greatest_smoothness == 0) return {};
  const double above = 1 + options.lambda;
  Samples samples(smoothness, gradient, inverse_unit(range.greatest_smoothness));

  const double x_inverse = inverse_unit(range.greatest_gradient);
  samples.set_units(0, x_inverse);
  const Line slope_only = minimise(samples, above, Free::kSlope, {});
  const double l1 = samples.l1(slope_only);
  if (options.l0_zero || range.least_gradient == range.greatest_gradient) return {0, l1};
  // The condition of optimality of L0 = 0: the loss grows with L0, beyond rounding.
  const Sums sums = samples.pass(slope_only, slope_only, above);
  if (sums.residual <= -16 * kEpsilon * sums.weight) return {0, l1};

  // Centred at the mean gradient, level and slope are almost independent, however narrow the range is.
  samples.set_units(mean_gradient(gradient, x_inverse), inverse_unit(range.greatest_gradient - range.least_gradient));
  const Line both = minimise(samples, above, Free::kBoth, samples.through_origin(l1));
  if (both.slope < 0) return {samples.l0(minimise(samples, above, Free::kLevel, {both.level, 0})), 0};
  const double l0 = samples.l0(both);
  return l0 > 0 ? Constants{l0, samples.l1(both)} : Constants{0, l1};
}

// Rounding must not count a sample on the line as a violation.
constexpr double kOnTheLine = 1e-12;

void measure(std::span<const double> smoothness, std::span<const double> gradient, Fit& fit) {
  double squares = 0;
  int64_t positive = 0;
  int64_t violated = 0;
  for (std::size_t i = 0; i < smoothness.size(); ++i) {
    if (smoothness[i] == 0) continue;
    const double relative = (smoothness[i] - (fit.l0 + fit.l1 * gradient[i])) / smoothness[i];
    squares += relative * relative;
    violated += relative > kOnTheLine;
    ++positive;
  }
  fit.mse_rel = positive == 0 ? 0 : squares / static_cast<double>(positive);
  fit.violations = static_cast<double>(violated) / static_cast<double>(smoothness.size());
}

// The samples have no obstacle().
Fit fit_in_range(std::span<const double> smoothness, std::span<const double> gradient, const Range& range,
                 const FitOptions& options) {
  const Constants constants = solve(smoothness, gradient, range, options);
  Fit fit{.l0 = constants.l0, .l1 = constants.l1, .samples = static_cast<int64_t>(smoothness.size())};
  measure(smoothness, gradient, fit);
  return fit;
}

std::string skipped_text(const FitOptions& options) {
  return options.skip_first == 0 ? "" : join(" after the first ", options.skip_first, " were skipped");
}

// The samples of one layer as arrays, with a reason when they cannot be fitted.
struct Columns {
  std::vector<double> smoothness;
  std::vector<double> gradient;
  std::vector<double> radius;  // without missing ones
  int64_t unmoved = 0;
  std::string reason;
};

Columns columns(const std::vector<Sample>& samples, const FitOptions& options) {
  Columns result;
  const std::size_t first = std::min(static_cast<std::size_t>(options.skip_first), samples.size());
  int64_t bad = 0;
  int64_t bad_step = 0;
  result.smoothness.reserve(samples.size() - first);
  result.gradient.reserve(samples.size() - first);
  for (std::size_t i = first; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    if (sample.displacement == 0) {
      ++result.unmoved;
      continue;
    }
    if (!std::isfinite(sample.smoothness) || !std::isfinite(sample.gradient)) {
      if (bad++ == 0) bad_step = sample.step;
    }
    result.smoothness.push_back(sample.smoothness);
    result.gradient.push_back(sample.gradient);
    if (!std::isnan(sample.radius)) result.radius.push_back(sample.radius);
  }
  if (bad > 0) {
    result.reason =
        join(bad, " of ", result.smoothness.size(), " samples are missing or not finite, the first at step ", bad_step);
  } else if (static_cast<int64_t>(result.smoothness.size()) < kMinSamples) {
    result.reason =
        join("needs at least ", kMinSamples, " samples, got ", result.smoothness.size(), skipped_text(options));
    if (result.unmoved > 0) result.reason += join("; in ", result.unmoved, " others the layer had not moved");
  }
  return result;
}

}  // namespace

void FitOptions::validate() const {
  GLUON_CHECK(lambda >= 0 && lambda <= 1e6, "fit: lambda must be in [0, 1e6], got ", lambda);
  GLUON_CHECK(skip_first >= 0, "fit: skip-first must be >= 0 samples, got ", skip_first);
}

Fit fit_smoothness(std::span<const double> smoothness, std::span<const double> gradient, const FitOptions& options) {
  options.validate();
  GLUON_CHECK(smoothness.size() == gradient.size(), "fit: expected as many gradients as smoothness values, got ",
              gradient.size(), " and ", smoothness.size());
  const std::size_t first = std::min(static_cast<std::size_t>(options.skip_first), smoothness.size());
  smoothness = smoothness.subspan(first);
  gradient = gradient.subspan(first);
  const auto count = static_cast<int64_t>(smoothness.size());
  GLUON_CHECK(count >= kMinSamples, "fit: needs at least ", kMinSamples, " samples, got ", count,
              skipped_text(options));
  Range range;
  const std::string reason = obstacle(smoothness, gradient, range);
  GLUON_CHECK(reason.empty(), "fit: ", reason);
  return fit_in_range(smoothness, gradient, range, options);
}

TrajectoryFit fit_trajectory(const Trajectory& trajectory, const FitOptions& options) {
  options.validate();
  TrajectoryFit result{.estimator = trajectory.estimator};
  for (const LayerTrajectory& layer : trajectory.layers) {
    Columns samples = columns(layer.samples, options);
    Range range;
    if (samples.reason.empty()) samples.reason = obstacle(samples.smoothness, samples.gradient, range);
    if (!samples.reason.empty()) {
      result.unfitted.push_back({layer.layer, layer.group, std::move(samples.reason)});
      continue;
    }
    result.layers.push_back({.layer = layer.layer,
                             .group = layer.group,
                             .fit = fit_in_range(samples.smoothness, samples.gradient, range, options),
                             .unmoved = samples.unmoved,
                             .gradient = median(std::move(samples.gradient)),
                             .radius = median(std::move(samples.radius))});
  }
  return result;
}

}  // namespace gluon
