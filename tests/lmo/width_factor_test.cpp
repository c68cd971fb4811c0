#include "gluon/lmo/width_factor.h"

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(WidthFactor, Arithmetic) {
  const MatrixShape shape{1, 4, 100, 1};
  EXPECT_DOUBLE_EQ(width_factor("0.5", shape), 0.5);
  EXPECT_DOUBLE_EQ(width_factor("1 + 2*3 - 8/4", shape), 5);
  EXPECT_DOUBLE_EQ(width_factor("8/4/2", shape), 1);
  EXPECT_DOUBLE_EQ(width_factor("sqrt(n/m)", shape), 5);
  EXPECT_DOUBLE_EQ(width_factor("1/(0.2*sqrt(max(m,n)))", shape), 0.5);
  EXPECT_DOUBLE_EQ(width_factor("min( m , n )", shape), 4);
}

TEST(WidthFactor, ConvolutionFactorUsesTheFlattenedView) {
  // 3x3, 8 -> 32 channels: k^2 sqrt(in/out) = 9 sqrt(8/32)
  const MatrixShape conv = matrix_shape({32, 8, 3, 3}, Role::kConv);
  EXPECT_DOUBLE_EQ(width_factor("sqrt(kernel*n/m)", conv), 9 * std::sqrt(8.0 / 32.0));
}

TEST(WidthFactor, ErrorsQuoteTheRestOfTheExpression) {
  EXPECT_INPUT_ERROR(width_factor("", {}), "width factor '': expected a number, m, n, kernel, sqrt, max or min at ''");
  EXPECT_INPUT_ERROR(width_factor("sqrt(q)", {}), "expected a number, m, n, kernel, sqrt, max or min at 'q)'");
  EXPECT_INPUT_ERROR(width_factor("2 3", {}), "expected an operator at '3'");
  EXPECT_INPUT_ERROR(width_factor("max(1)", {}), "expected ',' at ')'");
  EXPECT_INPUT_ERROR(width_factor("(1+2", {}), "expected ')' at ''");
}

TEST(WidthFactor, DeepNestingIsRejected) {
  std::string nested(32, '(');
  nested += '7';
  nested.append(32, ')');
  EXPECT_EQ(width_factor(nested, {}), 7);
  EXPECT_INPUT_ERROR(width_factor(std::string(1'000'000, '('), {}), "width factor: parentheses deeper than 32");
  std::string roots;
  for (int i = 0; i < 1'000'000; ++i) roots += "sqrt(";
  EXPECT_INPUT_ERROR(width_factor(roots, {}), "width factor: parentheses deeper than 32");
}

}  // namespace
}  // namespace gluon
