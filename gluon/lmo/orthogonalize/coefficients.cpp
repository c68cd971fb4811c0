#include "gluon/lmo/orthogonalize/coefficients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "gluon/core/check.h"

namespace gluon {
namespace {

constexpr int kMaxSteps = 100;
constexpr Quintic kJordan{3.4445, -4.7750, 2.0315};

double evaluate(const Quintic& p, double s) {
  const double s2 = s * s;
  return s * (p.a + s2 * (p.b + s2 * p.c));
}

using Equation = std::array<double, 5>;  // four coefficients and the right-hand side

std::array<double, 4> solve(std::array<Equation, 4> system) {
  for (int column = 0; column < 4; ++column) {
    const auto larger = [column](const Equation& x, const Equation& y) {
      return std::abs(x[column]) < std::abs(y[column]);
    };
    std::swap(system[column], *std::max_element(system.begin() + column, system.end(), larger));
    for (int row = 0; row < 4; ++row) {
      if (row == column) continue;
      const double factor = system[row][column] / system[column][column];
      for (int k = column; k < 5; ++k) system[row][k] -= factor * system[column][k];
    }
  }
  std::array<double, 4> solution;
  for (int i = 0; i < 4; ++i) solution[i] = system[i][4] / system[i][i];
  return solution;
}

// The quintic with the smallest max |1 - p| on [lower, upper]; 1 - p alternates between +error and -error at
// lower < left < right < upper, where left and right are the zeros of p'.
Quintic minimax_quintic(double lower, double upper) {
  // The equations become singular as the interval shrinks; the limit is the quintic flattest at its middle.
  if (lower / upper >= 1 - 5e-6) {
    const double middle = (lower + upper) / 2;
    return {15.0 / 8 / middle, -10.0 / 8 / std::pow(middle, 3), 3.0 / 8 / std::pow(middle, 5)};
  }
  constexpr int kMaxExchanges = 100;  // a handful suffices; the bound is for rounding that never settles
  double left = (3 * lower + upper) / 4, right = (lower + 3 * upper) / 4;
  double error = std::numeric_limits<double>::infinity();
  Quintic p{};
  for (int exchange = 0; exchange < kMaxExchanges; ++exchange) {
    const auto equation = [](double s, double sign) { return Equation{s, std::pow(s, 3), std::pow(s, 5), sign, 1}; };
    const auto [a, b, c, new_error] =
        solve({equation(lower, 1), equation(left, -1), equation(right, 1), equation(upper, -1)});
    p = {a, b, c};
    if (std::abs(new_error - error) <= 1e-15) break;
    error = new_error;
    const double root = std::sqrt(9 * b * b - 20 * a * c);
    left = std::sqrt((-3 * b - root) / (10 * c));
    right = std::sqrt((-3 * b + root) / (10 * c));
  }
  return p;
}

void check_steps(const char* origin, int steps) {
  GLUON_CHECK(steps >= 1 && steps <= kMaxSteps, origin, ": steps must be in 1..", kMaxSteps, ", got ", steps);
}

}  // namespace

std::vector<Quintic> jordan_coefficients(int steps) {
  check_steps("newton_schulz", steps);
  return std::vector<Quintic>(steps, kJordan);
}

void PolarExpressOptions::validate() const {
  check_steps("polar_express", steps);
  GLUON_CHECK(lower > 0 && lower < 1, "polar_express: lower must be in (0, 1), got ", lower);
  GLUON_CHECK(safety >= 1 && safety < 2, "polar_express: safety must be in [1, 2), got ", safety);
  GLUON_CHECK(cushion >= 0 && cushion < 1, "polar_express: cushion must be in [0, 1), got ", cushion);
}

std::vector<Quintic> polar_express_coefficients(const PolarExpressOptions& options) {
  options.validate();
  std::vector<Quintic> rows;
  double lower = options.lower, upper = 1;
  for (int step = 0; step < options.steps; ++step) {
    const double cushioned = std::max(lower, options.cushion * upper);
    Quintic p = minimax_quintic(cushioned, upper);
    if (cushioned > lower) {
      // Below the cushion p falls short of its band around 1; recentre, so that both ends are equally far from 1.
      const double centre = 2 / (evaluate(p, lower) + evaluate(p, upper));
      p = {p.a * centre, p.b * centre, p.c * centre};
    }
    rows.push_back(p);
    lower = evaluate(p, lower);
    upper = 2 - lower;
  }
  const double s = options.safety;
  for (std::size_t step = 0; step + 1 < rows.size(); ++step) {
    Quintic& p = rows[step];
    p = {p.a / s, p.b / std::pow(s, 3), p.c / std::pow(s, 5)};
  }
  return rows;
}

}  // namespace gluon
