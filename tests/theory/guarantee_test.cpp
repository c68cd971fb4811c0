#include "gluon/theory/guarantee.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/expect_error.h"

namespace gluon::theory {
namespace {

TEST(Constants, SumsAndMaxima) {
  const Constants constants{.layers = {{.l0 = 2, .l1 = 0}, {.l0 = 5, .l1 = 0}, {.l0 = 1, .l1 = 3}}};
  EXPECT_EQ(constants.sum_l0(), 8);
  EXPECT_EQ(constants.max_l0(), 5);
  EXPECT_EQ(constants.max_l1(), 3);
  EXPECT_FALSE(constants.l1_is_zero());
  EXPECT_TRUE((Constants{.layers = {{.l0 = 2}}}).l1_is_zero());
}

TEST(Constants, ErrorsNameTheLayer) {
  const auto validate = [](const LayerConstants& layer, double gap = 1) {
    Constants{.layers = {{.l0 = 1}, layer}, .initial_gap = gap}.validate("who");
  };
  EXPECT_NO_THROW(validate({.l0 = 0, .l1 = 1, .t = 0.5, .noise_factor = 2}, 0));
  EXPECT_INPUT_ERROR(Constants{}.validate("who"), "who: expected L0 and L1 of at least one layer, got none");
  EXPECT_INPUT_ERROR(validate({.l0 = 1}, NAN), "who: Delta0 must be >= 0, got nan");
  EXPECT_INPUT_ERROR(validate({.l0 = INFINITY}), "got L0 = inf, L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({}), "who: L0 and L1 must be >= 0 and not both 0, got L0 = 0, L1 = 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = 1, .t = 0}), "who: t must be > 0, got 0 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = 1, .noise_factor = 0.5}),
                     "who: the noise factor must be >= 1, got 0.5 for layer 2");
  EXPECT_INPUT_ERROR(validate({.l0 = -1, .name = "head"}), "got L0 = -1, L1 = 0 for layer 'head'");
}

// eps = 6 / K.
struct InverseRate {
  double needed(double precision) const { return 6 / precision; }
  double bound(double iterations) const { return 6 / iterations; }
};

TEST(Guarantee, IterationsAreTheCeiling) {
  Guarantee guarantee{.theorem = "a theorem"};
  guarantee.set_rate(InverseRate{});
  EXPECT_EQ(guarantee.iterations(4), 2);
  EXPECT_EQ(guarantee.iterations(3), 2);
  EXPECT_EQ(guarantee.iterations(0.1), 60);  // 6 / 0.1 is not a whole number in binary
  EXPECT_EQ(guarantee.iterations(6 / 1e13), 1e13);
  EXPECT_EQ(guarantee.bound(3), 2);
}

TEST(Guarantee, IterationsAreAtLeastOneUnlessStepsAreCounted) {
  Guarantee guarantee{.theorem = "a theorem", .needed = [](double) { return 0.0; }};
  EXPECT_EQ(guarantee.iterations(1), 1);
  guarantee.counts_steps = true;
  EXPECT_EQ(guarantee.iterations(1), 0);
}

TEST(Guarantee, ErrorsOfIterations) {
  Guarantee guarantee{.theorem = "a theorem"};
  guarantee.set_rate(InverseRate{});
  for (const double precision : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    EXPECT_INPUT_ERROR(guarantee.iterations(precision), "a theorem: eps must be > 0, got ");
  }
  EXPECT_INPUT_ERROR(guarantee.iterations(1e-310), "a theorem: K overflows double for eps = 1e-310");
  guarantee.needed = [](double) { return std::numeric_limits<double>::quiet_NaN(); };
  EXPECT_INPUT_ERROR(guarantee.iterations(1), "a theorem: K overflows double for eps = 1");
}

}  // namespace
}  // namespace gluon::theory
