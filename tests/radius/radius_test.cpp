#include "gluon/radius/radius.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

// A batch of two matrices whose momentum has the dual norms 6 and 0 in the max_entry norm.
BatchStep batch_at(int64_t step) {
  BatchStep batch;
  batch.step = step;
  batch.momentum = at::zeros({2, 2, 3}, at::kDouble);
  batch.momentum[0].fill_(1);
  batch.direction = batch.momentum.sign().neg();
  return batch;
}

double first(const at::Tensor& radius) { return radius[0].item<double>(); }

TEST(BatchStep, MomentumDualNormFollowsFromTheDirection) {
  EXPECT_TRUE(batch_at(0).momentum_dual_norm().equal(at::tensor({6.0, 0.0}, at::kDouble)));
}

TEST(Radius, ConstantAndPower) {
  EXPECT_DOUBLE_EQ(first(Radius(0.25)->radius(batch_at(9))), 0.25);
  EXPECT_EQ(Radius(0.25)->constant(), 0.25);
  EXPECT_DOUBLE_EQ(first(power_radius(2)->radius(batch_at(15))), 2 * std::pow(16, -0.75));
  EXPECT_FALSE(power_radius(2)->constant().has_value());
}

TEST(Radius, HorizonIsAPowerOfTheStepsOfTheRun) {
  const Radius radius = horizon_radius(0.5, 0.25, 16);
  EXPECT_DOUBLE_EQ(first(radius->radius(batch_at(3))), 0.25);
  EXPECT_EQ(radius->constant(), 0.25);
  EXPECT_EQ(radius->explanation(), "0.25 = 0.5 K^-0.25 with K = 16");
  EXPECT_EQ(horizon_radius(0.45, 0.4, 400)->explanation(), "0.0409627 = 0.45 K^-0.4 with K = 400");
  EXPECT_EQ(horizon_radius(1.11 * 0.45, 0.4, 1280)->explanation(), "0.028553 = 0.4995 K^-0.4 with K = 1280");
  EXPECT_EQ(horizon_radius(1, 0, 1000000)->name(), "horizon(1,0,1000000)");
  EXPECT_TRUE(Radius(0.25)->explanation().empty());
}

TEST(Radius, FormulasOfTheorems1And2) {
  for (const auto& [rule, expected] : {std::pair{smooth_radius(2, 0.5), 6 / (2 + 0.5 * 6)},
                                       {smooth_radius(0, 0.5), 1 / 0.5},
                                       {smooth_radius(2, 0), 6.0 / 2},
                                       {relative_noise_radius(2, 0.5, 0.2), 0.8 * 6 / (2 + 1.2 * 0.5 * 6)}}) {
    const at::Tensor radius = rule->radius(batch_at(0));
    EXPECT_DOUBLE_EQ(first(radius), expected) << rule->name();
    EXPECT_EQ(radius[1].item<double>(), 0) << rule->name();  // a zero gradient
  }
}

TEST(Radius, SteepestIsProportionalToTheDualNorm) {
  const at::Tensor radius = steepest_radius(0.25)->radius(batch_at(7));
  EXPECT_DOUBLE_EQ(first(radius), 0.25 * 6);
  EXPECT_EQ(radius[1].item<double>(), 0);  // a zero gradient
  EXPECT_FALSE(steepest_radius(0.25)->constant().has_value());
}

TEST(Radius, OverflowedDualNormGivesTheLimit) {
  BatchStep batch = batch_at(0);
  batch.momentum = at::full({1, 2, 3}, 3e38f);
  batch.direction = batch.momentum.sign().neg();
  EXPECT_FLOAT_EQ(smooth_radius(2, 0.5)->radius(batch).item<float>(), 2);
}

TEST(Radius, NamesParseBack) {
  for (const char* name : {"0.018", "1e-05", "power(0.5)", "smooth(0,2)", "relative_noise(1,2,0.5)", "steepest(0.1)",
                           "horizon(0.45,0.4,1000000)"}) {
    EXPECT_EQ(make_radius(name)->name(), name);
  }
}

TEST(Radius, BadInput) {
  EXPECT_INPUT_ERROR(Radius(0.0), "radius: must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(Radius(std::shared_ptr<const RadiusRule>()), "radius: expected a rule, got none");
  EXPECT_INPUT_ERROR(Radius(std::nan("")), "radius: must be > 0 and finite, got nan");
  EXPECT_INPUT_ERROR(constant_radius(INFINITY), "radius: must be > 0 and finite, got inf");
  EXPECT_INPUT_ERROR(power_radius(-1), "power radius: t must be > 0 and finite, got -1");
  EXPECT_INPUT_ERROR(power_radius(0), "power radius: t must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(power_radius(INFINITY), "power radius: t must be > 0 and finite, got inf");
  EXPECT_INPUT_ERROR(horizon_radius(0, 0.4, 9), "horizon radius: c must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(horizon_radius(INFINITY, 0.4, 9), "horizon radius: c must be > 0 and finite, got inf");
  EXPECT_INPUT_ERROR(horizon_radius(1, -0.4, 9), "horizon radius: p must be >= 0 and finite, got -0.4");
  EXPECT_INPUT_ERROR(horizon_radius(1, 0.4, 0), "horizon radius: steps must be >= 1, got 0");
  EXPECT_INPUT_ERROR(make_radius("horizon(1,0.4,9.5)"), "radius: expected a whole number, got '9.5'");
  EXPECT_INPUT_ERROR(smooth_radius(0, 0), "not both 0, got L0 = 0, L1 = 0");
  EXPECT_INPUT_ERROR(smooth_radius(-1, 2), "must be >= 0");
  EXPECT_INPUT_ERROR(smooth_radius(2, -1), "must be >= 0");
  EXPECT_INPUT_ERROR(smooth_radius(INFINITY, 1), "got L0 = inf, L1 = 1");
  EXPECT_INPUT_ERROR(smooth_radius(1, INFINITY), "got L0 = 1, L1 = inf");
  EXPECT_INPUT_ERROR(relative_noise_radius(1, 1, -0.1), "zeta must be in [0, 1), got -0.1");
  EXPECT_INPUT_ERROR(relative_noise_radius(1, 1, 1), "zeta must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(steepest_radius(0), "steepest radius: eta must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(steepest_radius(-1), "steepest radius: eta must be > 0 and finite, got -1");
  EXPECT_INPUT_ERROR(steepest_radius(INFINITY), "steepest radius: eta must be > 0 and finite, got inf");
  EXPECT_INPUT_ERROR(make_radius("smooth(1)"),
                     "unknown rule 'smooth(1)'; allowed are a number, power(T), smooth(L0,L1), "
                     "relative_noise(L0,L1,ZETA), steepest(ETA), horizon(C,P,STEPS)");
  for (const char* name : {"fast", "power", "power(1,2)", "smooth(1,2,3)", "relative_noise(1,2)", "horizon(1,2)",
                           "fast(1,2,3)", "2(3)", "steepest", "steepest(1,2)"}) {
    EXPECT_INPUT_ERROR(make_radius(name), "unknown rule '" + std::string(name) + "'");
  }
  EXPECT_INPUT_ERROR(make_radius("-0.5"), "radius: must be > 0 and finite, got -0.5");
}

}  // namespace
}  // namespace gluon
