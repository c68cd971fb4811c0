#include "gluon/radius/decay.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "tests/expect_error.h"

namespace gluon {
namespace {

at::Tensor shrunk(const Decay& decay, const at::Tensor& x, const at::Tensor& heading, double keep) {
  at::Tensor result = x.clone();
  decay.shrink(result, heading, at::full({}, keep, x.options()));
  return result;
}

TEST(Decay, CautiousShrinksWhereTheStepPullsTowardsZero) {
  // Downhill, so opposite signs agree with the decay; a heading of 0 does not hinder it.
  const at::Tensor x = at::tensor({2.0f, 2.0f, 2.0f, -2.0f, -2.0f, -2.0f, 0.0f});
  const at::Tensor heading = at::tensor({1.0f, -1.0f, 0.0f, 1.0f, -1.0f, 0.0f, 1.0f});
  EXPECT_TRUE(shrunk(Decay::cautious(0.1), x, heading, 0.5).equal(at::tensor({2.f, 1.f, 1.f, -1.f, -2.f, -1.f, 0.f})));
  EXPECT_TRUE(shrunk(0.1, x, heading, 0.5).equal(x / 2));
  EXPECT_TRUE(shrunk(0.1, x, at::Tensor(), 0.5).equal(x / 2));
}

TEST(Decay, TheProductOfTinyEntriesStillHasASign) {
  const at::Tensor x = at::full({3}, 1e-30f), heading = at::tensor({1e-30f, -1e-30f, 1e30f});
  EXPECT_TRUE(shrunk("cautious(1)", x, heading, 0.5).equal(at::tensor({1e-30f, 0.5e-30f, 1e-30f})));
}

TEST(Decay, ItsScheduleMultipliesItsWeight) {
  const Decay decay = "cautious(0.5,linear(10,10))";
  for (const auto& [step, weight] : {std::pair{0, 0.5}, {5, 0.25}, {9, 0.05}, {50, 0.05}}) {
    EXPECT_NEAR(decay.weight(step), weight, 1e-15) << step;
  }
  EXPECT_EQ(decay.weight(), 0.5);
  EXPECT_EQ(Decay(0.25).weight(77), 0.25);
}

TEST(Decay, OnlyThePlainOneIsConstant) {
  EXPECT_EQ(Decay(0.25).constant(), 0.25);
  EXPECT_EQ(Decay().constant(), 0);
  EXPECT_EQ(Decay("cautious(0)").constant(), 0);
  EXPECT_FALSE(Decay("cautious(0.25)").constant());
  EXPECT_FALSE(Decay("decoupled(0.25,warmup(5))").constant());
  for (const char* none : {"0", "cautious(0)", "decoupled(0,warmup(5))"}) EXPECT_TRUE(Decay(none).is_none()) << none;
}

TEST(Decay, NamesParseBack) {
  for (const char* name : {"0", "0.1", "cautious(0.01)", "cautious(0.01,linear(5000,5000,0))",
                           "decoupled(0.1,cosine(100,0,0))", "decoupled(1e-05,warmup(7))"}) {
    EXPECT_EQ(Decay(name).name(), name);
  }
  EXPECT_EQ(Decay("decoupled(0.1)").name(), "0.1");
  EXPECT_EQ(Decay(std::string("cautious(0.01, linear(9,3))")).name(), "cautious(0.01,linear(9,3,0))");
}

TEST(Decay, BadInputIsNamed) {
  for (const char* name : {"", "sometimes", "cautious", "cautious()", "cautious(1,constant,2)", "decoupled"}) {
    EXPECT_ANY_THROW(Decay{name}) << name;
  }
  EXPECT_INPUT_ERROR((void)Decay("sometimes(0.1)"),
                     "decay: unknown name 'sometimes(0.1)'; allowed are a number, decoupled(WEIGHT[,SCHEDULE]), "
                     "cautious(WEIGHT[,SCHEDULE])");
  EXPECT_INPUT_ERROR((void)Decay("cautious(x)"), "decay: expected a number, got 'x'");
  EXPECT_INPUT_ERROR((void)Decay("cautious(0.1,up)"), "schedule: unknown name 'up'");
  EXPECT_INPUT_ERROR((void)Decay(-1.0), "Decay: the weight decay must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR((void)Decay::cautious(INFINITY), "Decay: the weight decay must be >= 0 and finite, got inf");
}

}  // namespace
}  // namespace gluon
