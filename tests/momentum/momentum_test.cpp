#include "gluon/momentum/momentum.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

at::Tensor filled(double value) { return at::full({2, 3}, value, at::kDouble); }

TEST(Momentum, BetaWeighsTheOldMomentum) {
  at::Tensor buffer = filled(2);
  Momentum::ema(0.75).accumulate(buffer, filled(10), 5);
  EXPECT_DOUBLE_EQ(buffer[0][0].item<double>(), 0.75 * 2 + 0.25 * 10);
}

TEST(Momentum, NesterovMatchesThePublicMuon) {
  const Momentum momentum = Momentum::nesterov(0.9);
  at::Tensor buffer = filled(1);
  at::Tensor input = filled(0);
  momentum.accumulate(buffer, filled(3), 0);
  momentum.write_input(input, buffer, filled(3), 0);
  const double kept = 0.9 * 1 + 0.1 * 3;
  EXPECT_DOUBLE_EQ(buffer[1][2].item<double>(), kept);
  EXPECT_DOUBLE_EQ(input[1][2].item<double>(), 0.9 * kept + 0.1 * 3);
}

TEST(Momentum, Theorem3StartsWithTheFirstGradient) {
  const Momentum momentum = Momentum::theorem3();
  EXPECT_EQ(momentum.beta(0), 0);
  EXPECT_DOUBLE_EQ(momentum.beta(3), 0.5);
  EXPECT_DOUBLE_EQ(momentum.beta(99), 0.9);
  at::Tensor buffer = filled(7);
  momentum.accumulate(buffer, filled(10), 0);
  EXPECT_TRUE(buffer.equal(filled(10)));
}

TEST(Momentum, NonePassesTheGradientThrough) {
  const Momentum momentum = Momentum::none();
  EXPECT_FALSE(momentum.keeps_buffer());
  at::Tensor input = filled(0);
  momentum.write_input(input, {}, filled(4), 0);
  EXPECT_TRUE(input.equal(filled(4)));
}

TEST(Momentum, HalfPrecisionGradientsFoldIntoAFloatBuffer) {
  at::Tensor buffer = at::zeros({4}, at::kFloat);
  const at::Tensor gradient = at::full({4}, 1.0, at::kHalf);
  Momentum::ema(0.5).accumulate(buffer, gradient, 0);
  EXPECT_TRUE(buffer.equal(at::full({4}, 0.5)));
}

TEST(Momentum, OnlyNoneKeepsNoBufferAndOnlyNesterovMixesTheGradientIn) {
  for (const Momentum& momentum : {Momentum::ema(0.9), Momentum::theorem3(), Momentum(0.9)}) {
    EXPECT_TRUE(momentum.keeps_buffer() && momentum.input_is_buffer()) << momentum.name();
  }
  EXPECT_TRUE(Momentum::nesterov(0.9).keeps_buffer());
  EXPECT_FALSE(Momentum::nesterov(0.9).input_is_buffer());
  EXPECT_FALSE(Momentum::none().input_is_buffer());
}

TEST(Momentum, BetaAloneKeepsTheKindOfTheGeometry) {
  EXPECT_EQ(Momentum(0.8).over(Momentum::nesterov(0.95)).name(), "nesterov(0.8)");
  EXPECT_EQ(Momentum(0.8).over(Momentum::none()).name(), "ema(0.8)");
  EXPECT_EQ(Momentum::ema(0.8).over(Momentum::nesterov(0.95)).name(), "ema(0.8)");
  EXPECT_EQ(Momentum::none().over(Momentum::nesterov(0.95)).name(), "none");
}

TEST(Momentum, NamesParseBack) {
  for (const char* name : {"none", "ema(0.9)", "nesterov(0.95)", "theorem3"}) {
    EXPECT_EQ(make_momentum(name).name(), name);
  }
}

TEST(Momentum, WithBetaReplacesBeta) {
  EXPECT_EQ(Momentum::nesterov(0.95).with_beta(0.8).name(), "nesterov(0.8)");
  EXPECT_EQ(Momentum::ema(0.9).constant_beta(), 0.9);
  EXPECT_FALSE(Momentum::theorem3().constant_beta());
  EXPECT_FALSE(Momentum::none().constant_beta());
  EXPECT_INPUT_ERROR(Momentum::theorem3().with_beta(0.5), "theorem3 has no beta to change");
  EXPECT_INPUT_ERROR(Momentum::ema(0.9).with_beta(1), "beta must be in [0, 1), got 1");
}

TEST(Momentum, BadInput) {
  EXPECT_INPUT_ERROR(Momentum(1.0), "beta must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(Momentum::nesterov(-0.1), "beta must be in [0, 1), got -0.1");
  EXPECT_INPUT_ERROR(Momentum(std::nan("")), "beta must be in [0, 1), got nan");
  EXPECT_INPUT_ERROR(make_momentum("adam"),
                     "unknown name 'adam'; allowed are none, ema(BETA), nesterov(BETA), theorem3");
  for (const char* name : {"none(1)", "theorem3(1)", "ema", "ema(0.5,0.5)", "nesterov", "adam(0.5)"}) {
    EXPECT_INPUT_ERROR(make_momentum(name), "unknown name");
  }
}

}  // namespace
}  // namespace gluon
