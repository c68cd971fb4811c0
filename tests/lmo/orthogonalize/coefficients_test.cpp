#include "gluon/lmo/orthogonalize/coefficients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

double composed(const std::vector<Quintic>& rows, double s) {
  for (const auto& [a, b, c] : rows) s = a * s + b * std::pow(s, 3) + c * std::pow(s, 5);
  return s;
}

// Smallest and largest value of the composed polynomial on [lower, 1] divided by safety.
std::array<double, 2> range(const std::vector<Quintic>& rows, double lower, double safety) {
  constexpr int kPoints = 200000;
  double smallest = 1e9, largest = -1e9;
  for (int i = 0; i <= kPoints; ++i) {
    const double s = std::pow(lower, 1 - static_cast<double>(i) / kPoints);
    const double value = composed(rows, s / safety);
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  return {smallest, largest};
}

// Published for lower = 1e-3, before the safety factor.
constexpr std::array<Quintic, 8> kPublished{{{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                             {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                             {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                             {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                             {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                                             {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                                             {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
                                             {1.875, -1.25, 0.375}}};

TEST(Coefficients, JordanRepeatsOneRow) {
  EXPECT_EQ(jordan_coefficients(7), std::vector<Quintic>(7, {3.4445, -4.7750, 2.0315}));
}

TEST(Coefficients, EndInTheDocumentedIntervals) {
  const auto polar_express = [](int steps, double lower) {
    return polar_express_coefficients({.steps = steps, .lower = lower});
  };
  struct Case {
    std::vector<Quintic> rows;
    double lower, safety;
    std::array<double, 2> smallest, largest;  // between these
  };
  for (const Case& c : {Case{jordan_coefficients(5), 0.05, 1, {0.67, 0.71}, {1.11, 1.14}},
                        {polar_express(4, 5e-3), 5e-3, 1.01, {0.89, 1}, {1, 1.09}},
                        {polar_express(5, 1e-3), 1e-3, 1.01, {0.84, 0.85}, {1.11, 1.13}},
                        {polar_express(6, 1e-3), 1e-3, 1.01, {0.994, 1}, {1, 1.002}},
                        {polar_express(8, 1e-4), 1e-4, 1.01, {0.999, 1}, {1, 1.001}}}) {
    const auto [smallest, largest] = range(c.rows, c.lower, c.safety);
    EXPECT_GT(smallest, c.smallest[0]) << c.rows.size() << " steps";
    EXPECT_LT(smallest, c.smallest[1]) << c.rows.size() << " steps";
    EXPECT_GT(largest, c.largest[0]) << c.rows.size() << " steps";
    EXPECT_LT(largest, c.largest[1]) << c.rows.size() << " steps";
  }
}

TEST(Coefficients, QuinticsAreStepsWithOneSquare) {
  for (const Quintic& row : {kPublished[0], kPublished[7], jordan_coefficients(1)[0]}) {
    const PolarStep step = quintic_steps({&row, 1}).at(0);
    for (const double s : {0.0, 1e-3, 0.3, 1.0, 1.9}) {
      EXPECT_NEAR(s * step.multiplier(s * s), composed({row}, s), 1e-13 * (1 + std::abs(composed({row}, s))));
    }
  }
  const Quintic cubic{1.5, -0.5, 0};
  EXPECT_INPUT_ERROR(quintic_steps({&cubic, 1}), "quintic_steps: expected c != 0, got a = 1.5, b = -0.5, c = 0");
}

TEST(Coefficients, ExpandedSquaresAreTheStep) {
  for (const PolarStep& step : polar_squares_steps(9)) {
    for (const double stored : {0.0, step.shift, -0.7}) {
      for (const double x : {0.0, 0.1, 1.0, 3.5}) {
        double w = x + stored;
        for (const auto& [square, addend, constant] : expand(step, stored)) {
          w = square * w * w + addend * (x + stored) + constant;
        }
        EXPECT_NEAR(w, step.multiplier(x), 1e-12 * (1 + std::abs(w)));
      }
    }
  }
}

TEST(Coefficients, SquaresEndInTheDocumentedIntervals) {
  struct Case {
    int squares;
    double lower, smallest, largest;
  };
  for (const auto& [squares, lower, expected_smallest, expected_largest] :
       {Case{8, 1e-3, 0.868, 1.114}, {9, 8e-4, 0.902, 1.081}}) {
    constexpr int kPoints = 200000;
    double smallest = 2, largest = 0;
    for (int i = 0; i <= kPoints; ++i) {
      double s = std::pow(lower, 1 - static_cast<double>(i) / kPoints) / kSquaresSafety;
      for (const PolarStep& step : polar_squares_steps(squares)) s *= step.multiplier(s * s);
      smallest = std::min(smallest, s);
      largest = std::max(largest, s);
    }
    EXPECT_NEAR(smallest, expected_smallest, 2e-3) << squares;
    EXPECT_NEAR(largest, expected_largest, 2e-3) << squares;
  }
  EXPECT_INPUT_ERROR(polar_squares_steps(7), "polar_squares: squares must be 8 or 9, got 7");
}

TEST(Coefficients, PolarExpressReproducesThePublishedTable) {
  const auto rows = polar_express_coefficients({.steps = 8, .lower = 1e-3, .safety = 1});
  ASSERT_EQ(rows.size(), kPublished.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].a, kPublished[i].a, 1e-9) << "row " << i;
    EXPECT_NEAR(rows[i].b, kPublished[i].b, 1e-9) << "row " << i;
    EXPECT_NEAR(rows[i].c, kPublished[i].c, 1e-9) << "row " << i;
  }
}

TEST(Coefficients, SafetyDividesEveryRowButTheLast) {
  const double safety = 1.05;
  const auto plain = polar_express_coefficients({.steps = 6, .safety = 1});
  const auto safe = polar_express_coefficients({.steps = 6, .safety = safety});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double s = i + 1 < plain.size() ? safety : 1;
    EXPECT_DOUBLE_EQ(safe[i].a, plain[i].a / s);
    EXPECT_DOUBLE_EQ(safe[i].b, plain[i].b / std::pow(s, 3));
    EXPECT_DOUBLE_EQ(safe[i].c, plain[i].c / std::pow(s, 5));
  }
}

TEST(Coefficients, OneRowIsOptimal) {
  // Without a cushion the error alternates with equal size at four points, so no quintic does better.
  const double lower = 0.2;
  const auto row = polar_express_coefficients({.steps = 1, .lower = lower, .safety = 1, .cushion = 0});
  const double error = 1 - composed(row, lower);
  const auto [smallest, largest] = range(row, lower, 1);
  EXPECT_NEAR(1 - smallest, error, 1e-9);
  EXPECT_NEAR(largest - 1, error, 1e-9);
  EXPECT_NEAR(1 - composed(row, 1), -error, 1e-12);
}

TEST(Coefficients, AnyValidOptionsGiveFiniteRowsThatConverge) {
  for (const double lower : {1e-10, 1e-6, 1e-3, 0.03, 0.5, 0.999, 1 - 1e-9}) {
    const auto rows = polar_express_coefficients({.steps = 30, .lower = lower, .safety = 1});
    const auto [smallest, largest] = range(rows, lower, 1);
    EXPECT_NEAR(smallest, 1, 1e-9) << "lower " << lower;
    EXPECT_NEAR(largest, 1, 1e-9) << "lower " << lower;
  }
}

TEST(Coefficients, AHundredStepsAreAllowed) {
  EXPECT_EQ(jordan_coefficients(1).size(), 1u);
  EXPECT_EQ(jordan_coefficients(100).size(), 100u);
  EXPECT_EQ(polar_express_coefficients({.steps = 100}).size(), 100u);
}

TEST(Coefficients, InvalidOptionsAreRejected) {
  const auto rows = polar_express_coefficients;
  EXPECT_INPUT_ERROR(rows({.steps = 0}), "polar_express: steps must be in 1..100, got 0");
  EXPECT_INPUT_ERROR(rows({.steps = 101}), "polar_express: steps must be in 1..100, got 101");
  EXPECT_INPUT_ERROR(rows({.lower = 0}), "polar_express: lower must be in (0, 1), got 0");
  EXPECT_INPUT_ERROR(rows({.lower = 1}), "polar_express: lower must be in (0, 1), got 1");
  EXPECT_INPUT_ERROR(rows({.lower = std::nan("")}), "polar_express: lower must be in (0, 1), got nan");
  EXPECT_INPUT_ERROR(rows({.safety = 0.9}), "polar_express: safety must be in [1, 2), got 0.9");
  EXPECT_INPUT_ERROR(rows({.safety = 2}), "polar_express: safety must be in [1, 2), got 2");
  EXPECT_INPUT_ERROR(rows({.cushion = -0.5}), "polar_express: cushion must be in [0, 1), got -0.5");
  EXPECT_INPUT_ERROR(rows({.cushion = 1}), "polar_express: cushion must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(jordan_coefficients(-1), "newton_schulz: steps must be in 1..100, got -1");
}

}  // namespace
}  // namespace gluon
