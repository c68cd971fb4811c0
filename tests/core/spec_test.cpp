#include "gluon/core/spec.h"

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(Spec, SplitsAtTheOutermostCommas) {
  const Spec spec = parse_spec(" scaled( max(1,m/n) , spectral(svd) ) ", "norm");
  EXPECT_EQ(spec.name, "scaled");
  EXPECT_EQ(spec.arguments, (std::vector<std::string>{"max(1,m/n)", "spectral(svd)"}));
  EXPECT_TRUE(parse_spec("rows", "norm").arguments.empty());
}

TEST(Spec, MalformedSpecsAreRejected) {
  EXPECT_INPUT_ERROR(parse_spec("", "norm"), "norm: expected a name, got ''");
  EXPECT_INPUT_ERROR(parse_spec("scaled(2,rows", "norm"), "norm: expected name(argument,...), got 'scaled(2,rows'");
  EXPECT_INPUT_ERROR(parse_spec("a(b))(c)", "norm"), "unbalanced parentheses");
  EXPECT_INPUT_ERROR(parse_number("0.5x", "radius"), "radius: expected a number, got '0.5x'");
  EXPECT_INPUT_ERROR(parse_number("inf", "radius"), "radius: expected a finite number, got 'inf'");
  EXPECT_INPUT_ERROR(parse_integer("1.5", "schedule"), "schedule: expected a whole number, got '1.5'");
}

TEST(Spec, DeepNestingIsRejected) {
  const auto nested = [](std::size_t depth) {
    return join("a", std::string(depth, '('), "b", std::string(depth, ')'));
  };
  EXPECT_EQ(parse_spec(nested(kMaxSpecDepth), "norm").arguments.size(), 1u);
  EXPECT_INPUT_ERROR(parse_spec(nested(kMaxSpecDepth + 1), "norm"), "norm: parentheses deeper than 32");
  EXPECT_INPUT_ERROR(parse_spec(nested(1'000'000), "norm"), "norm: parentheses deeper than 32");
}

TEST(Spec, NumbersRoundTrip) {
  for (const double value : {0.1, 1.0 / 3.0, 1e-30, 12345678.9, std::sqrt(2.0)}) {
    EXPECT_EQ(parse_number(number_text(value), "test"), value);
  }
  EXPECT_EQ(spec_text("smooth", {0, 0.5}), "smooth(0,0.5)");
  EXPECT_EQ(spec_text("none", {}), "none");
}

}  // namespace
}  // namespace gluon
