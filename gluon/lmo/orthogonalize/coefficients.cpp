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

// scripts/polar_squares.py --squares 3,3,2 --lower 1e-3
std::vector<PolarStep> eight_squares() {
  return {{-0.54089739220433752,
           {{5.7098119790948623, -0.67051962730748826},
            {1.2649825756625501, -0.26498257566255012},
            {26.076057239006499, 0.26522725273408398}}},
          {-2.1340798516614776,
           {{0.35679249199154423, -0.62493890927485074},
            {1.2117360377685584, -0.21173603776855837},
            {10.401177439871411, 0.45127931689018602}}},
          {-1.797706675506165,
           {{0.37462523810945469, -0.21069484771066233}, {2.484951699742648, 1.1073005840634662}},
           -0.21532044099123762}};
}

// scripts/polar_squares.py --squares 3,3,3 --lower 8e-4
std::vector<PolarStep> nine_squares() {
  return {{-0.54089739220433752,
           {{5.7098119790948623, -0.67051962730748826},
            {1.2649825756625501, -0.26498257566255012},
            {26.145611490327937, 0.26593470949508408}}},
          {-2.1372186214415478,
           {{0.3585150380472617, -0.63759037108753425},
            {1.2259876292092091, -0.22598762920920951},
            {10.928909540006602, 0.38314140791378587}}},
          {-2.9576432416696807,
           {{0.1888475437739304, -0.65197288575749557},
            {1.1258607734864385, -0.12586077348643848},
            {3.2070072814637345, 1.4469619453465592}},
           -0.42514588235328454}};
}

}  // namespace

std::vector<PolarStep> quintic_steps(std::span<const Quintic> rows) {
  std::vector<PolarStep> steps;
  for (const auto& [a, b, c] : rows) {
    GLUON_CHECK(c != 0, "quintic_steps: expected c != 0, got a = ", a, ", b = ", b, ", c = 0");
    steps.push_back({b / (2 * c), {{c, a - b * b / (4 * c)}}});
  }
  return steps;
}

std::vector<PolarStep> polar_squares_steps(int squares) {
  GLUON_CHECK(squares == 8 || squares == 9, "polar_squares: squares must be 8 or 9, got ", squares);
  return squares == 8 ? eight_squares() : nine_squares();
}

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
