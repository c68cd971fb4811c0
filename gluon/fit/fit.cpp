#include "gluon/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gluon/core/check.h"
#include "gluon/fit/median.h"

namespace gluon {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr std::size_t kMinSamples = 2;
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
};

// 1 / value up to a factor of 2, exactly representable.
double inverse_unit(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, -std::clamp(exponent, -1000, 1000));
}

struct Samples {
  std::span<const double> smoothness;
  std::span<const double> gradient;
  // y = smoothness * y_inverse, u = (gradient - centre) * x_inverse.
  double y_inverse;
  double x_inverse;
  double centre;

  double l1(Line line) const { return line.slope * x_inverse / y_inverse; }
  double l0(Line line) const { return line.level / y_inverse - l1(line) * centre; }
  Line through_origin(double l1) const {
    const double slope = l1 * y_inverse / x_inverse;
    return {slope * (centre * x_inverse), slope};
  }

  Sums pass(Line line, Line before, double above) const;
};

// Blocks keep rounding errors at the size of a block's sum. The order of the sums is left to the compiler, and w comes
// from the sign of r without a branch, so that vectors are used: a pass over 10 million samples takes 12 ms on an EPYC
// core, with branches it took 65.
Sums Samples::pass(Line line, Line before, double above) const {
  constexpr std::size_t kBlock = 1024;
  const double* const y_data = smoothness.data();
  const double* const x_data = gradient.data();
  const double y_unit = y_inverse, x_unit = x_inverse, x_centre = centre;
  const double middle = 0.5 * (above + 1), half = 0.5 * (above - 1);
  Sums total;
  for (std::size_t begin = 0; begin < smoothness.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, smoothness.size());
    double residual = 0, residual_u = 0, weight = 0, weight_u = 0, weight_uu = 0, changes = 0;
#pragma omp simd reduction(+ : residual, residual_u, weight, weight_u, weight_uu, changes)
    for (std::size_t i = begin; i < end; ++i) {
      const double y = y_data[i] * y_unit;
      const double u = (x_data[i] - x_centre) * x_unit;
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
    total.residual += residual;
    total.residual_u += residual_u;
    total.weight += weight;
    total.weight_u += weight_u;
    total.weight_uu += weight_uu;
    total.changes += changes;
  }
  return total;
}

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
std::string obstacle(std::span<const double> smoothness, std::span<const double> gradient, const FitOptions& options,
                     Range& range) {
  if (smoothness.size() < kMinSamples) {
    const int64_t skipped = options.skip_first.value_or(0);
    return join("needs at least ", kMinSamples, " samples, got ", smoothness.size(),
                skipped == 0 ? "" : join(" after the first ", skipped, " were skipped"));
  }
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

// The active set has three candidates: L0 = 0, both free, L1 = 0. As Lhat >= 0 and |g|* >= 0, the minimum with one
// constant fixed at 0 has the other >= 0, and a constant that is negative in the free minimum is 0 in the
// constrained one.
Fit solve(std::span<const double> smoothness, std::span<const double> gradient, const Range& range,
          const FitOptions& options) {
  if (range.greatest_smoothness == 0) return Fit{};
  const double above = 1 + options.lambda;
  Samples samples{smoothness, gradient, inverse_unit(range.greatest_smoothness), inverse_unit(range.greatest_gradient),
                  0};
  const Line slope_only = minimise(samples, above, Free::kSlope, {});
  const double l1 = samples.l1(slope_only);
  if (options.l0_zero || range.least_gradient == range.greatest_gradient) return {0, l1};
  // The condition of optimality of L0 = 0: the loss grows with L0, beyond rounding.
  const Sums sums = samples.pass(slope_only, slope_only, above);
  if (sums.residual <= -16 * kEpsilon * sums.weight) return {0, l1};

  // Centred at the mean gradient, level and slope are almost independent, however narrow the range is.
  samples.centre = mean_gradient(gradient, samples.x_inverse);
  samples.x_inverse = inverse_unit(range.greatest_gradient - range.least_gradient);
  const Line both = minimise(samples, above, Free::kBoth, samples.through_origin(l1));
  if (both.slope < 0) return {samples.l0(minimise(samples, above, Free::kLevel, {both.level, 0})), 0};
  const double l0 = samples.l0(both);
  return l0 > 0 ? Fit{l0, samples.l1(both)} : Fit{0, l1};
}

// Rounding must not count a sample on the line as a violation.
constexpr double kOnTheLine = 1e-12;

// The samples have no obstacle().
Fit fit_in_range(std::span<const double> smoothness, std::span<const double> gradient, const Range& range,
                 const FitOptions& options) {
  Fit fit = solve(smoothness, gradient, range, options);
  double squares = 0;
  int64_t positive = 0, violated = 0, far_below = 0;
  for (std::size_t i = 0; i < smoothness.size(); ++i) {
    const double line = fit.l0 + fit.l1 * gradient[i];
    far_below += smoothness[i] < line / 2;
    if (smoothness[i] == 0) continue;
    const double relative = (smoothness[i] - line) / smoothness[i];
    squares += relative * relative;
    violated += relative > kOnTheLine;
    ++positive;
  }
  fit.samples = static_cast<int64_t>(smoothness.size());
  fit.mse_rel = positive == 0 ? 0 : squares / static_cast<double>(positive);
  const auto count = static_cast<double>(smoothness.size());
  fit.violations = static_cast<double>(violated) / count;
  if (const double share = static_cast<double>(far_below) / count; share > 0.5) {
    fit.doubt = join(std::lround(100 * share), " % of the samples are below half of the line");
  }
  return fit;
}

// How many first samples the rule leaves out: at most those before the last three quarters.
std::size_t leading_outliers(std::span<const double> smoothness, std::span<const double> gradient,
                             const FitOptions& options) {
  const std::size_t most = smoothness.size() / 4;
  Range range;
  const auto rest_y = smoothness.subspan(most), rest_x = gradient.subspan(most);
  if (most == 0 || !obstacle(rest_y, rest_x, options, range).empty()) return 0;
  const Fit rest = solve(rest_y, rest_x, range, options);
  std::size_t count = 0;
  while (count < most) {
    const double line = rest.l0 + rest.l1 * gradient[count];
    if (line == 0 || !(smoothness[count] > kOutlier * line)) break;
    ++count;
  }
  return count;
}

// The samples have no obstacle(), and this range.
Fit fit_by_rule(std::span<const double> smoothness, std::span<const double> gradient, Range range,
                const FitOptions& options) {
  const std::size_t left_out = options.skip_first ? 0 : leading_outliers(smoothness, gradient, options);
  if (left_out > 0) {
    smoothness = smoothness.subspan(left_out);
    gradient = gradient.subspan(left_out);
    range = {};
    (void)obstacle(smoothness, gradient, options, range);  // has none: the rule could fit a part of them
  }
  Fit fit = fit_in_range(smoothness, gradient, range, options);
  fit.left_out = static_cast<int64_t>(left_out);
  return fit;
}

// The samples of one layer as arrays.
struct Columns {
  std::vector<double> smoothness;
  std::vector<double> gradient;
  std::vector<double> radius;  // without missing ones
  int64_t unmoved = 0;
  int64_t bad = 0;  // missing or not finite
  int64_t first_bad_step = 0;
};

// Without the first `left_out` of those in which the layer moved.
Columns columns(std::span<const Sample> samples, std::size_t left_out = 0) {
  Columns result;
  for (const Sample& sample : samples) {
    if (sample.displacement == 0) {
      ++result.unmoved;
      continue;
    }
    if (left_out > 0) {
      --left_out;
      continue;
    }
    if ((!std::isfinite(sample.smoothness) || !std::isfinite(sample.gradient)) && result.bad++ == 0) {
      result.first_bad_step = sample.step;
    }
    result.smoothness.push_back(sample.smoothness);
    result.gradient.push_back(sample.gradient);
    if (!std::isnan(sample.radius)) result.radius.push_back(sample.radius);
  }
  return result;
}

std::string obstacle(const Columns& samples, const FitOptions& options, Range& range) {
  const std::size_t count = samples.smoothness.size();
  if (samples.bad > 0) {
    return join(samples.bad, " of ", count, " samples are missing or not finite, the first at step ",
                samples.first_bad_step);
  }
  std::string reason = obstacle(samples.smoothness, samples.gradient, options, range);
  if (count >= kMinSamples || samples.unmoved == 0) return reason;
  return join(reason, "; in ", samples.unmoved, " others the layer had not moved");
}

// All but the first skip_first.
template <typename Value> std::span<const Value> kept(std::span<const Value> values, const FitOptions& options) {
  return values.subspan(std::min(static_cast<std::size_t>(options.skip_first.value_or(0)), values.size()));
}

}  // namespace

void FitOptions::validate() const {
  GLUON_CHECK(lambda >= 0 && lambda <= 1e6, "fit: lambda must be in [0, 1e6], got ", lambda);
  GLUON_CHECK(skip_first.value_or(0) >= 0, "fit: skip-first must be >= 0 samples, got ", *skip_first);
}

Fit fit_smoothness(std::span<const double> smoothness, std::span<const double> gradient, const FitOptions& options) {
  options.validate();
  GLUON_CHECK(smoothness.size() == gradient.size(), "fit: expected as many gradients as smoothness values, got ",
              gradient.size(), " and ", smoothness.size());
  smoothness = kept(smoothness, options);
  gradient = kept(gradient, options);
  Range range;
  const std::string reason = obstacle(smoothness, gradient, options, range);
  GLUON_CHECK(reason.empty(), "fit: ", reason);
  return fit_by_rule(smoothness, gradient, range, options);
}

TrajectoryFit fit_trajectory(const Trajectory& trajectory, const FitOptions& options) {
  options.validate();
  TrajectoryFit result{.estimator = trajectory.estimator};
  for (const LayerTrajectory& layer : trajectory.layers) {
    const std::span<const Sample> considered = kept(std::span(layer.samples), options);
    Columns samples = columns(considered);
    Range range;
    if (std::string reason = obstacle(samples, options, range); !reason.empty()) {
      result.unfitted.push_back({layer.layer, layer.group, std::move(reason)});
      continue;
    }
    Fit fit = fit_by_rule(samples.smoothness, samples.gradient, range, options);
    if (fit.left_out > 0) samples = columns(considered, static_cast<std::size_t>(fit.left_out));
    result.layers.push_back({.layer = layer.layer,
                             .group = layer.group,
                             .fit = std::move(fit),
                             .unmoved = samples.unmoved,
                             .gradient = median(std::move(samples.gradient)),
                             .radius = median(std::move(samples.radius))});
  }
  return result;
}

}  // namespace gluon
