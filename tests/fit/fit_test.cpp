#include "gluon/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "gluon/smoothness/trajectory.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"

namespace gluon {
namespace {

struct Data {
  std::string name;
  std::vector<double> smoothness;
  std::vector<double> gradient;
};

long double loss(const Data& data, double lambda, long double l0, long double l1) {
  long double sum = 0;
  for (std::size_t i = 0; i < data.smoothness.size(); ++i) {
    const long double r = data.smoothness[i] - (l0 + l1 * data.gradient[i]);
    sum += r * r * (r > 0 ? 1 + static_cast<long double>(lambda) : 1);
  }
  return sum;
}

Data generated(const std::string& kind, std::size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> gradient(-2, 1.5);
  std::lognormal_distribution<double> noise(0, 0.5);
  std::uniform_real_distribution<double> uniform(0, 1);
  Data data{kind, {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    double x = gradient(random);
    double y = (0.5 + 3 * x) * noise(random);
    if (kind == "through zero") y = 3 * x * noise(random);
    if (kind == "falling") y = noise(random) / (1 + x);
    if (kind == "unrelated") y = noise(random);
    if (kind == "exact") y = 0.5 + 3 * x;
    if (kind == "equal gradients") x = 0.7;
    if (kind == "narrow gradients") x = 1 + 1e-9 * uniform(random), y = 1e9 * (x - 1) + uniform(random);
    if (kind == "an outlier" && i == 0) y = 1e6;
    if (kind == "a far gradient" && i == 0) x = 1e6;
    if (kind == "some zeros" && i % 3 == 0) y = 0;
    if (kind == "zero gradients but one" && i != 0) x = 0;
    if (kind == "all zero smoothness") y = 0;
    if (kind == "tiny") x *= 1e-30, y *= 1e-30;
    if (kind == "huge") x *= 1e30, y *= 1e30;
    if (kind == "ties") x = std::ceil(4 * uniform(random)), y = std::floor(4 * uniform(random));
    data.smoothness.push_back(y);
    data.gradient.push_back(x);
  }
  return data;
}

// No feasible point is better by more than rounding.
void expect_best(const Data& data, FitOptions options, uint64_t seed) {
  options.skip_first = 0;
  const Fit fit = fit_smoothness(data.smoothness, data.gradient, options);
  SCOPED_TRACE(data.name + ", " + std::to_string(data.smoothness.size()) + " samples, lambda " +
               std::to_string(options.lambda) + (options.l0_zero ? ", L0 = 0" : ""));
  ASSERT_GE(fit.l0, 0);
  ASSERT_GE(fit.l1, 0);
  ASSERT_TRUE(fit.l0 == 0 || !options.l0_zero);
  const long double best = loss(data, options.lambda, fit.l0, fit.l1);
  const long double rounding = 1e-13L * best + 1e-27L * loss(data, options.lambda, 0, 0);
  const auto expect_no_better = [&](long double l0, long double l1) {
    if (options.l0_zero) l0 = 0;
    const long double other = loss(data, options.lambda, std::max(l0, 0.0L), std::max(l1, 0.0L));
    ASSERT_LE(best, other + rounding) << "L0 " << fit.l0 << " L1 " << fit.l1 << " loses to " << l0 << " " << l1;
  };
  const double y = *std::max_element(data.smoothness.begin(), data.smoothness.end());
  const double x = *std::max_element(data.gradient.begin(), data.gradient.end());
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 500; ++i) expect_no_better(y * uniform(random), y / x * uniform(random));
  for (int i = 0; i < 500; ++i) {
    const auto factor = [&] { return std::pow(10.0, -8 * uniform(random)) * (uniform(random) < 0.5 ? -1 : 1); };
    expect_no_better(fit.l0 + factor() * std::max(fit.l0, 1e-3 * y),
                     fit.l1 + factor() * std::max(fit.l1, 1e-3 * y / x));
  }
  for (const double width : {1e-2, 1e-4, 1e-6}) {
    for (int i = -8; i <= 8; ++i) {
      for (int j = -8; j <= 8; ++j) {
        expect_no_better(fit.l0 + i * width / 8 * std::max(fit.l0, y),
                         fit.l1 + j * width / 8 * std::max(fit.l1, y / x));
        // Along the line's own level at the largest gradient, the narrow valley of the loss.
        expect_no_better(fit.l0 + i * width / 8 * y, fit.l1 - i * width / 8 * y / x + j * width * width * y / x);
      }
    }
  }
}

TEST(Fit, NoBetterPointAtRandomOrOnAGrid) {
  uint64_t seed = 0;
  for (const char* kind : {"line", "through zero", "falling", "unrelated", "exact", "an outlier", "a far gradient",
                           "some zeros", "zero gradients but one", "equal gradients", "tiny", "huge", "ties",
                           "all zero smoothness", "narrow gradients"}) {
    for (const std::size_t count : {2, 3, 7, 60}) {
      for (const double lambda : {0.0, 0.3, 5.0, 100.0, 1e6}) {
        for (const bool l0_zero : {false, true}) {
          ++seed;
          expect_best(generated(kind, count, seed), {.lambda = lambda, .l0_zero = l0_zero}, seed);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Fit, MillionSamplesSatisfyOptimalityConditions) {
  for (const std::string kind : {"line", "through zero", "falling", "exact"}) {
    const Data data = generated(kind, 1'000'000, 7);
    for (const double lambda : {0.0, 5.0, 1e6}) {
      SCOPED_TRACE(kind + ", lambda " + std::to_string(lambda));
      const Fit fit = fit_smoothness(data.smoothness, data.gradient, {.lambda = lambda});
      EXPECT_EQ(fit.samples, 1'000'000);
      // Derivatives by L0 and L1, beside the sums of the absolute values of their terms.
      long double by_l0 = 0, by_l1 = 0, size_l0 = 0, size_l1 = 0;
      for (std::size_t i = 0; i < data.smoothness.size(); ++i) {
        const long double a = fit.l0 + static_cast<long double>(fit.l1) * data.gradient[i];
        const long double r = data.smoothness[i] - a;
        const long double w = r > 0 ? 1 + lambda : 1;
        by_l0 -= w * r;
        by_l1 -= w * r * data.gradient[i];
        size_l0 += w * a;
        size_l1 += w * a * data.gradient[i];
      }
      if (kind == "exact") {
        EXPECT_NEAR(fit.l0, 0.5, 1e-13);
        EXPECT_NEAR(fit.l1, 3, 1e-13);
        continue;
      }
      EXPECT_GE(by_l0, -1e-11L * size_l0);
      EXPECT_GE(by_l1, -1e-11L * size_l1);
      EXPECT_TRUE(fit.l0 == 0 || by_l0 <= 1e-11L * size_l0) << by_l0 << " " << size_l0;
      EXPECT_TRUE(fit.l1 == 0 || by_l1 <= 1e-11L * size_l1) << by_l1 << " " << size_l1;
    }
  }
}

TEST(Fit, ClosedForms) {
  // Two samples: the line runs through both.
  const std::vector<double> x = {1, 3};
  Fit fit = fit_smoothness(std::vector<double>{5, 9}, x);
  EXPECT_NEAR(fit.l0, 3, 1e-14);
  EXPECT_NEAR(fit.l1, 2, 1e-14);
  EXPECT_NEAR(fit.mse_rel, 0, 1e-28);
  EXPECT_EQ(fit.violations, 0);
  EXPECT_EQ(fit.samples, 2);
  // Falling: L1 = 0, L0 = ((1 + lambda) 9 + 5) / (2 + lambda) with the larger above.
  fit = fit_smoothness(std::vector<double>{9, 5}, x);
  EXPECT_DOUBLE_EQ(fit.l0, (6 * 9 + 5) / 7.0);
  EXPECT_EQ(fit.l1, 0);
  EXPECT_EQ(fit.violations, 0.5);
  EXPECT_DOUBLE_EQ(fit.mse_rel, (std::pow(1 - fit.l0 / 9, 2) + std::pow(1 - fit.l0 / 5, 2)) / 2);
  // L0 = 0 by request: L1 = sum w x y / sum w x^2.
  fit = fit_smoothness(std::vector<double>{5, 9}, x, {.lambda = 1, .l0_zero = true});
  EXPECT_DOUBLE_EQ(fit.l1, (2 * 5 + 27) / (2 + 9.0));
  EXPECT_EQ(fit.l0, 0);
  // Equal gradients: only L0 + L1 |g|* is determined, and L0 is 0.
  fit = fit_smoothness(std::vector<double>{4, 8}, std::vector<double>{2, 2}, {.lambda = 0});
  EXPECT_EQ(fit.l0, 0);
  EXPECT_DOUBLE_EQ(fit.l1, 3);
  // Samples without smoothness: no relative error.
  fit = fit_smoothness(std::vector<double>{0, 0}, x);
  EXPECT_EQ(fit.l0 + fit.l1 + fit.mse_rel + fit.violations, 0);
}

TEST(Fit, SkipFirstLeavesOutTheFirstSamples) {
  const std::vector<double> x = {7, 1, 3};
  const Fit fit = fit_smoothness(std::vector<double>{1e9, 5, 9}, x, {.skip_first = 1});
  EXPECT_NEAR(fit.l0, 3, 1e-14);
  EXPECT_EQ(fit.samples, 2);
}

std::map<std::string, Fit> fits_of(const std::filesystem::path& log, double lambda,
                                   std::optional<int64_t> skip_first = 0) {
  std::map<std::string, Fit> fits;
  for (const LayerFit& layer :
       fit_trajectory(read_trajectory(log), {.lambda = lambda, .skip_first = skip_first}).layers) {
    fits[layer.layer] = layer.fit;
  }
  return fits;
}

TEST(Fit, MatchesThePapersConstants) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "paper-logs");
  const auto nanogpt = fits_of(folder / "nanogpt-unscion.txt", 5);
  EXPECT_EQ(nanogpt.size(), 73);
  const std::map<std::string, double> expected = {{"24", 68.4167}, {"25", 70.5126}, {"26", 71.1571}, {"27", 68.1653},
                                                  {"28", 69.9247}, {"29", 70.8654}, {"72", 1.33048}};
  for (const auto& [layer, l1] : expected) {
    EXPECT_NEAR(nanogpt.at(layer).l1, l1, 1e-5 * l1) << layer;
    EXPECT_LT(nanogpt.at(layer).l0, 1e-3) << layer;
    EXPECT_EQ(nanogpt.at(layer).samples, 99) << layer;
  }
  EXPECT_NEAR(fits_of(folder / "nanogpt-unscion.txt", 0).at("24").mse_rel, 0.0023, 0.00005);
  const auto cnn = fits_of(folder / "cnn-fullbatch.txt", 5);
  EXPECT_NEAR(cnn.at("1").l1, 3.1964, 1e-4);
  EXPECT_NEAR(cnn.at("2").l1, 2.8131, 1e-4);
}

// The rule changes none of the constants that the paper quotes; it does change those that one sample decides.
TEST(Fit, TheRuleKeepsTheConstantsOfThePaper) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "paper-logs");
  for (const auto& [layer, fit] : fits_of(folder / "nanogpt-unscion.txt", 5)) {
    const Fit by_rule = fits_of(folder / "nanogpt-unscion.txt", 5, {}).at(layer);
    EXPECT_EQ(by_rule.left_out, 0) << layer;
    EXPECT_EQ(by_rule.l0, fit.l0) << layer;
    EXPECT_EQ(by_rule.l1, fit.l1) << layer;
  }
  const auto all = fits_of(folder / "cnn-fullbatch.txt", 5), by_rule = fits_of(folder / "cnn-fullbatch.txt", 5, {});
  for (const auto& [layer, fit] : by_rule) {
    const bool outlier = layer == "0" || layer == "7" || layer == "13";
    EXPECT_EQ(fit.left_out, outlier ? 1 : 0) << layer;
    EXPECT_EQ(fit.l1 == all.at(layer).l1, !outlier) << layer;
    EXPECT_EQ(all.at(layer).doubt.empty(), !outlier) << layer << ": " << all.at(layer).doubt;
    EXPECT_EQ(fit.doubt, "") << layer;
  }
}

// Lhat = 1 + 2 |g|* with some noise, times `factor` in the samples `at`.
Data with_outliers(std::size_t count, const std::vector<std::size_t>& at, double factor) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> gradient(0.5, 2), noise(0.8, 1.2);
  Data data{"outliers", {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    data.gradient.push_back(gradient(random));
    data.smoothness.push_back((1 + 2 * data.gradient.back()) * noise(random));
  }
  for (const std::size_t i : at) data.smoothness[i] *= factor;
  return data;
}

TEST(Fit, LeavesOutTheStartWhileItIsFarAboveTheRest) {
  const auto fit = [](const std::vector<std::size_t>& at, double factor, const FitOptions& options = {}) {
    const Data data = with_outliers(20, at, factor);
    return fit_smoothness(data.smoothness, data.gradient, options);
  };
  const Fit clean = fit({}, 1);
  EXPECT_EQ(clean.left_out, 0);
  EXPECT_EQ(clean.doubt, "");
  EXPECT_EQ(fit({0}, 2).left_out, 0);  // within the factor
  EXPECT_EQ(fit({0}, 30).left_out, 1);
  EXPECT_EQ(fit({0, 1, 2}, 30).left_out, 3);              // none hides another
  EXPECT_EQ(fit({0, 2}, 30).left_out, 1);                 // only the start
  EXPECT_EQ(fit({0, 1, 2, 3, 4, 5, 6}, 30).left_out, 0);  // more than a quarter is no outlier of the rest
  EXPECT_EQ(fit({0}, 30).samples, 19);
  const Data rest = with_outliers(20, {0}, 30);
  const Fit expected = fit_smoothness(rest.smoothness, rest.gradient, {.skip_first = 1});
  EXPECT_EQ(fit({0}, 30).l0, expected.l0);
  EXPECT_EQ(fit({0}, 30).l1, expected.l1);
  EXPECT_EQ(expected.left_out, 0);  // it is the caller who skips
  EXPECT_EQ(fit({0}, 30, {.skip_first = 0}).samples, 20);
  EXPECT_EQ(fit({0}, 30, {.l0_zero = true}).left_out, 1);
}

TEST(Fit, FewSamplesAndZerosAreNotLeftOut) {
  const auto left_out = [](const std::vector<double>& smoothness) {
    const std::vector<double> gradient(smoothness.size(), 1);
    return fit_smoothness(smoothness, gradient).left_out;
  };
  EXPECT_EQ(left_out({100, 1, 1}), 0);  // a quarter of three is none
  EXPECT_EQ(left_out({100, 1, 1, 1}), 1);
  EXPECT_EQ(left_out({100, 0, 0, 0}), 0);  // no line to compare with
}

TEST(Fit, DoubtsALineFarAboveMostSamples) {
  const Data data = with_outliers(20, {10}, 1000);
  const Fit fit = fit_smoothness(data.smoothness, data.gradient);
  EXPECT_EQ(fit.left_out, 0);
  EXPECT_EQ(fit.doubt, "95 % of the samples are below half of the line");
  EXPECT_EQ(fit_smoothness(with_outliers(20, {10}, 3).smoothness, data.gradient).doubt, "");
  EXPECT_EQ(fit_smoothness(with_outliers(20, {10}, 1e-6).smoothness, data.gradient).doubt, "");  // one tiny sample
  EXPECT_EQ(fit_smoothness(std::vector<double>{0, 0}, std::vector<double>{1, 1}).doubt, "");
}

LayerTrajectory layer(const std::string& name, const std::vector<Sample>& samples) {
  return {.layer = name, .group = "hidden", .samples = samples};
}

TEST(Fit, ListsLayersThatCannotBeFitted) {
  const auto at = [](int64_t step, double smoothness, double gradient, double displacement = 1) {
    return Sample{.step = step, .displacement = displacement, .smoothness = smoothness, .gradient = gradient};
  };
  const double inf = std::numeric_limits<double>::infinity();
  Trajectory trajectory{.estimator = Estimator::kSameBatch};
  trajectory.layers = {layer("good", {at(1, 5, 1), at(2, 9, 3)}),
                       layer("frozen at first", {at(1, inf, 1, 0), at(2, 5, 1), at(3, 9, 3)}),
                       layer("zero", {at(1, 1, 0), at(2, 2, 0)}),
                       layer("one", {at(1, 1, 1)}),
                       layer("frozen", {at(1, inf, 1, 0), at(2, Sample::kMissing, 0, 0)}),
                       layer("frozen once", {at(1, inf, 1, 0), at(2, 5, 1)}),
                       layer("nan", {at(1, 1, 1), at(2, Sample::kMissing, 1), at(3, 1, inf)}),
                       layer("negative", {at(1, 1, 1), at(2, -1, 1)})};
  const TrajectoryFit result = fit_trajectory(trajectory);
  EXPECT_EQ(result.estimator, Estimator::kSameBatch);
  ASSERT_EQ(result.layers.size(), 2);
  for (const LayerFit& fitted : result.layers) {
    EXPECT_NEAR(fitted.fit.l0, 3, 1e-14);
    EXPECT_EQ(fitted.fit.samples, 2);
    EXPECT_EQ(fitted.group, "hidden");
  }
  EXPECT_EQ(result.layers[0].unmoved, 0);
  EXPECT_EQ(result.layers[1].unmoved, 1);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"zero", "all 2 gradients are zero, so L1 is undetermined"},
      {"one", "needs at least 2 samples, got 1"},
      {"frozen", "needs at least 2 samples, got 0; in 2 others the layer had not moved"},
      {"frozen once", "needs at least 2 samples, got 1; in 1 others the layer had not moved"},
      {"nan", "2 of 3 samples are missing or not finite, the first at step 2"},
      {"negative", "samples must be finite and >= 0, got smoothness -1 with gradient 1 in sample 1"}};
  ASSERT_EQ(result.unfitted.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.unfitted[i].layer, expected[i].first);
    EXPECT_EQ(result.unfitted[i].reason, expected[i].second);
  }
  const TrajectoryFit skipped = fit_trajectory(trajectory, {.skip_first = 1});
  ASSERT_EQ(skipped.layers.size(), 1);
  EXPECT_EQ(skipped.layers[0].layer, "frozen at first");
  EXPECT_EQ(skipped.unfitted[0].reason, "needs at least 2 samples, got 1 after the first 1 were skipped");
}

TEST(Fit, MediansOfTheFittedSamples) {
  const auto at = [](double smoothness, double gradient, double radius, double displacement = 1) {
    return Sample{.displacement = displacement, .smoothness = smoothness, .gradient = gradient, .radius = radius};
  };
  const double none = Sample::kMissing;
  Trajectory trajectory;
  trajectory.layers = {
      // The first is skipped, the layer had not moved at the third.
      layer("a", {at(1, 1000, 9), at(5, 1, 0.5), at(none, 1000, 9, 0), at(9, 3, 0.25), at(13, 5, none)}),
      layer("b", {at(1, 1000, 9), at(5, 1, none), at(9, 2, none)})};
  const TrajectoryFit result = fit_trajectory(trajectory, {.skip_first = 1});
  ASSERT_EQ(result.layers.size(), 2U);
  EXPECT_EQ(result.layers[0].fit.samples, 3);
  EXPECT_EQ(result.layers[0].gradient, 3);
  EXPECT_EQ(result.layers[0].radius, 0.375);
  EXPECT_EQ(result.layers[1].gradient, 1.5);
  EXPECT_TRUE(std::isnan(result.layers[1].radius));
}

TEST(Fit, MediansLeaveOutWhatTheRuleLeavesOut) {
  std::vector<Sample> samples = {{.step = 1, .displacement = 0, .smoothness = 9, .gradient = 7, .radius = 0.7}};
  for (int64_t step = 2; step <= 9; ++step) {
    samples.push_back({.step = step, .displacement = 1, .smoothness = 2, .gradient = 1, .radius = 0.1});
  }
  samples[1] = {.step = 2, .displacement = 1, .smoothness = 2000, .gradient = 1000, .radius = Sample::kMissing};
  samples[1].gradient = 1;
  const LayerFit fit = fit_trajectory({.layers = {layer("a", samples)}}).layers.at(0);
  EXPECT_EQ(fit.fit.left_out, 1);
  EXPECT_EQ(fit.fit.samples, 7);
  EXPECT_EQ(fit.unmoved, 1);
  EXPECT_EQ(fit.radius, 0.1);
  EXPECT_EQ(fit.gradient, 1);
}

TEST(Fit, BadInput) {
  const std::vector<double> two = {1, 2};
  const double nan = Sample::kMissing;
  EXPECT_INPUT_ERROR(fit_smoothness(two, two, {.lambda = -1}), "lambda must be in [0, 1e6], got -1");
  EXPECT_INPUT_ERROR(fit_smoothness(two, two, {.lambda = nan}), "lambda must be in [0, 1e6], got nan");
  EXPECT_INPUT_ERROR(fit_smoothness(two, two, {.lambda = 1.5e6}), "lambda must be in [0, 1e6], got 1.5e+06");
  EXPECT_INPUT_ERROR(fit_trajectory({}, {.skip_first = -2}), "skip-first must be >= 0 samples, got -2");
  EXPECT_INPUT_ERROR(fit_smoothness(two, std::vector<double>{1}),
                     "expected as many gradients as smoothness values, got 1 and 2");
  EXPECT_INPUT_ERROR(fit_smoothness(two, two, {.skip_first = 5}),
                     "fit: needs at least 2 samples, got 0 after the first 5 were skipped");
  EXPECT_INPUT_ERROR(fit_smoothness(two, std::vector<double>{1, nan}),
                     "samples must be finite and >= 0, got smoothness 2 with gradient nan in sample 1");
  EXPECT_INPUT_ERROR(fit_smoothness(two, std::vector<double>{0, 0}),
                     "fit: all 2 gradients are zero, so L1 is undetermined");
}

}  // namespace
}  // namespace gluon
