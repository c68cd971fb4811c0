#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/fit/fit.h"
#include "gluon/smoothness/trajectory.h"
#include "gluon/theory/theorems.h"
#include "lab/train/run_directory.h"

namespace gluon::cli {
namespace {

using nlohmann::json;
using theory::Constants;
using theory::Guarantee;
using theory::TableRow;

struct TheoryFlags {
  std::string theorem;
  std::string l0, l1, t, noise_factor;  // lists
  std::optional<double> initial_gap, precision, mu, zeta, sigma;
  std::optional<std::string> steps;  // as text: CLI11 clamps numbers that are too large
  std::string run;
  bool json = false;
};

// The result to print, with the origin of its constants.
struct Answer {
  Constants constants;
  std::vector<std::string> notes;
  Guarantee guarantee;
  std::optional<double> iterations;  // for --eps
  std::optional<int64_t> steps;      // of --steps
  std::optional<double> bound;       // for --steps
  std::vector<TableRow> table1;      // for --eps, where its results promise the same

  std::string layer_name(std::size_t i) const {
    return constants.layers[i].name.empty() ? std::to_string(i + 1) : constants.layers[i].name;
  }
};

std::vector<double> parse_list(const std::string& text, const std::string& flag) {
  std::vector<double> numbers;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    numbers.push_back(parse_number(text.substr(start, end - start), "theory: " + flag));
    start = end + 1;
  }
  return numbers;
}

int64_t parse_steps(const std::string& text) {
  const double steps = parse_number(text, "theory: --steps");
  // All whole numbers up to here are exact in double.
  GLUON_CHECK(steps >= 1 && steps <= 1e15 && std::floor(steps) == steps,
              "theory: --steps must be a whole number from 1 to 1e15, got ", text);
  return static_cast<int64_t>(steps);
}

// Rejects flags that the theorem does not use.
void check_flags(const TheoryFlags& flags) {
  const std::string& name = flags.theorem;
  GLUON_CHECK(name == "3" || (flags.t.empty() && flags.noise_factor.empty()),
              "theory: --t and --noise-factor apply to theorem 3 only, got theorem ", name);
  GLUON_CHECK(name == "3" || !flags.sigma, "theory: --sigma applies to theorem 3 only, got theorem ", name);
  GLUON_CHECK(name == "2" || name == "2w" || !flags.zeta,
              "theory: --zeta applies to theorems 2 and 2w only, got theorem ", name);
  GLUON_CHECK(name == "pl" || name == "pl0" || !flags.mu,
              "theory: --mu applies to theorems pl and pl0 only, got theorem ", name);
  GLUON_CHECK(flags.precision || flags.steps, "theory: expected --eps, --steps or both");
}

double required(const std::optional<double>& value, const TheoryFlags& flags, const std::string& flag) {
  GLUON_CHECK(value, "theory: theorem ", flags.theorem, " needs ", flag);
  return *value;
}

// One value per layer, or one for all of them; none without the flag.
std::vector<double> parse_per_layer(const std::string& text, const std::string& flag, std::size_t layers) {
  if (text.empty()) return {};
  const std::vector<double> numbers = parse_list(text, flag);
  GLUON_CHECK(numbers.size() == layers || numbers.size() == 1, "theory: ", flag,
              " must have 1 number or one per layer (", layers, "), got ", numbers.size());
  return numbers.size() == 1 ? std::vector<double>(layers, numbers[0]) : numbers;
}

void constants_from_flags(const TheoryFlags& flags, Answer& answer) {
  GLUON_CHECK(!flags.l0.empty() && !flags.l1.empty(),
              "theory: expected --L0 and --L1 (one number per layer: a,b,...) or --run");
  const std::vector<double> l0 = parse_list(flags.l0, "--L0"), l1 = parse_list(flags.l1, "--L1");
  GLUON_CHECK(l0.size() == l1.size(), "theory: --L0 and --L1 must have the same length, got ", l0.size(), " and ",
              l1.size());
  for (std::size_t i = 0; i < l0.size(); ++i) {
    answer.constants.layers.push_back({.l0 = l0[i], .l1 = l1[i]});
  }
  answer.constants.initial_gap = required(flags.initial_gap, flags, "--delta0");
}

// First minus smallest training loss of the run's log.csv.
double initial_gap_of(const std::filesystem::path& run) {
  const std::vector<lab::LogRow> rows = lab::RunDirectory::open(run).log();
  GLUON_CHECK(!rows.empty(), "theory: ", run.string(), " has no log to take Delta0 from; give --delta0");
  const auto less = [](const lab::LogRow& a, const lab::LogRow& b) { return a.loss < b.loss; };
  return rows.front().loss - std::min_element(rows.begin(), rows.end(), less)->loss;
}

// L0 and L1 as `gluon fit` computes them by default.
void constants_from_run(const TheoryFlags& flags, Answer& answer) {
  GLUON_CHECK(flags.l0.empty() && flags.l1.empty(), "theory: expected either --run or --L0 and --L1, got both");
  const TrajectoryFit fits = fit_trajectory(read_trajectory(flags.run), {.lambda = 5});
  for (const LayerFit& layer : fits.layers) {
    if (layer.fit.l0 + layer.fit.l1 == 0) {
      answer.notes.push_back("layer '" + layer.layer + "' is left out: its gradient never changed");
      continue;
    }
    answer.constants.layers.push_back({.l0 = layer.fit.l0, .l1 = layer.fit.l1, .name = layer.layer});
    if (!layer.fit.doubt.empty()) answer.notes.push_back("layer '" + layer.layer + "' is doubtful: " + layer.fit.doubt);
  }
  for (const UnfittedLayer& layer : fits.unfitted) {
    answer.notes.push_back("layer '" + layer.layer + "' is left out: " + layer.reason);
  }
  GLUON_CHECK(!answer.constants.layers.empty(), "theory: ", flags.run,
              " has no layer with L0 and L1: ", answer.notes.empty() ? "it holds no samples" : answer.notes.front());
  answer.notes.push_back(join("L0 and L1 are fitted (lambda 5) to samples taken by the estimator '",
                              estimator_name(fits.estimator), "'; they are no bounds outside of this run"));
  if (flags.initial_gap) {
    answer.constants.initial_gap = *flags.initial_gap;
    return;
  }
  answer.constants.initial_gap = initial_gap_of(flags.run);
  answer.notes.push_back(
      "Delta0 is a lower estimate, the first minus the smallest training loss of the run: inf f is below "
      "that loss");
}

Guarantee make_guarantee(const TheoryFlags& flags, const Constants& constants) {
  const std::string& name = flags.theorem;
  if (name == "1") return theory::theorem1(constants);
  if (name == "1w") return theory::theorem1_weighted(constants);
  if (name == "pl") return theory::theorem_pl(constants, required(flags.mu, flags, "--mu"));
  if (name == "pl0") return theory::theorem_pl_without_l1(constants, required(flags.mu, flags, "--mu"));
  if (name == "2") return theory::theorem2(constants, required(flags.zeta, flags, "--zeta"));
  if (name == "2w") return theory::theorem2_weighted(constants, required(flags.zeta, flags, "--zeta"));
  GLUON_CHECK(name == "3", "theory: unknown theorem '", name, "'; allowed are 1, 1w, pl, pl0, 2, 2w, 3");
  return theory::theorem3(constants, required(flags.sigma, flags, "--sigma"));
}

Answer solve(const TheoryFlags& flags) {
  check_flags(flags);
  Answer answer;
  if (flags.steps) answer.steps = parse_steps(*flags.steps);
  flags.run.empty() ? constants_from_flags(flags, answer) : constants_from_run(flags, answer);
  auto& layers = answer.constants.layers;
  const std::vector<double> t = parse_per_layer(flags.t, "--t", layers.size());
  const std::vector<double> factors = parse_per_layer(flags.noise_factor, "--noise-factor", layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!t.empty()) layers[i].t = t[i];
    if (!factors.empty()) layers[i].noise_factor = factors[i];
  }
  answer.guarantee = make_guarantee(flags, answer.constants);
  if (flags.theorem == "3" && factors.empty()) {
    answer.notes.push_back("c_i = 1 holds for Euclidean norms; others need --noise-factor");
  }
  if (flags.precision) answer.iterations = answer.guarantee.iterations(*flags.precision);
  if (answer.steps) {
    answer.bound = answer.guarantee.bound(static_cast<double>(*answer.steps));
    GLUON_CHECK(std::isfinite(*answer.bound), answer.guarantee.theorem, ": the bound after ", *answer.steps,
                " iterations overflows double");
  }
  if (flags.precision && !answer.guarantee.weights.empty()) {
    const auto noise = flags.theorem.starts_with('1')   ? theory::NoiseKind::kNone
                       : flags.theorem.starts_with('2') ? theory::NoiseKind::kRelative
                                                        : theory::NoiseKind::kVariance;
    answer.table1 = theory::table1(answer.constants, noise, *flags.precision, flags.sigma);
  }
  return answer;
}

// Counts up to here are printed with all digits.
constexpr double kExactCount = 1e14;

std::string count_text(double count) {
  return count < kExactCount ? std::to_string(static_cast<int64_t>(count)) : join(count);
}

json count_json(const std::optional<double>& count) {
  if (!count) return nullptr;
  return *count < kExactCount ? json(static_cast<int64_t>(*count)) : json(*count);
}

template <typename Value> json optional_json(const std::optional<Value>& value) {
  return value ? json(*value) : json();
}

void print_json(const TheoryFlags& flags, const Answer& answer) {
  const Guarantee& guarantee = answer.guarantee;
  json layers = json::array();
  for (std::size_t i = 0; i < answer.constants.layers.size(); ++i) {
    layers.push_back({{"layer", answer.layer_name(i)},
                      {"L0", answer.constants.layers[i].l0},
                      {"L1", answer.constants.layers[i].l1},
                      {"radius", guarantee.radii[i]},
                      {"largest_radius", guarantee.largest_radii[i]}});  // null when there is none
    if (!guarantee.weights.empty()) layers.back()["weight"] = guarantee.weights[i];
  }
  json table = json::array();
  for (const TableRow& row : answer.table1) {
    table.push_back({{"result", row.source},
                     {"stochastic", row.stochastic},
                     {"L0_L1", row.layer_wise},
                     {"rate", row.rate},
                     {"radius", row.radius},
                     {"one_minus_beta", row.one_minus_beta},
                     {"applies", row.obstacle.empty()},
                     {"obstacle", row.obstacle.empty() ? json() : json(row.obstacle)},
                     {"K", count_json(row.iterations)}});
  }
  const json result = {{"theorem", flags.theorem},
                       {"promise", guarantee.promise},
                       {"formula", guarantee.formula},
                       {"bound_formula", guarantee.bound_formula},
                       {"K", count_json(answer.iterations)},
                       {"eps", optional_json(flags.precision)},
                       {"steps", optional_json(answer.steps)},
                       {"bound", optional_json(answer.bound)},
                       {"delta0", answer.constants.initial_gap},
                       {"mu", optional_json(flags.mu)},
                       {"zeta", optional_json(flags.zeta)},
                       {"sigma", optional_json(flags.sigma)},
                       {"momentum", guarantee.momentum},
                       {"layers", layers},
                       {"table1", table},
                       {"notes", answer.notes}};
  std::cout << result.dump(2) << '\n';
}

void print_table1(const Answer& answer) {
  if (answer.table1.empty()) return;
  std::cout << "\ntable 1, for sum_i E|grad_i f|* <= eps; earlier results with one L for all layers\n";
  const std::vector<int> widths = {26, 12, 10, 10, 18, 18, 0};
  print_row(widths, {"result", "stochastic", "(L0, L1)", "rate", "radius", "1 - beta", "K"});
  for (const TableRow& row : answer.table1) {
    std::string count = row.obstacle.empty() ? "constants not given" : "does not apply: " + row.obstacle;
    if (row.iterations) count = count_text(*row.iterations);
    print_row(widths, {row.source, row.stochastic ? "yes" : "no", row.layer_wise ? "yes" : "no", row.rate, row.radius,
                       row.one_minus_beta, count});
  }
}

// The radii of a run's layers as flags of its next run.
void print_flags(const Answer& answer) {
  std::string radii;
  for (std::size_t i = 0; i < answer.constants.layers.size(); ++i) {
    const std::string& layer = answer.constants.layers[i].name;
    if (layer.empty()) return;
    radii += join(radii.empty() ? "" : ",", layer, "=", answer.guarantee.radii[i]);
  }
  std::cout << "\ngluon train --radius '" << radii << "' --momentum " << answer.guarantee.momentum
            << " --schedule constant\n";
}

void print_table(const TheoryFlags& flags, const Answer& answer) {
  const Guarantee& guarantee = answer.guarantee;
  std::cout << guarantee.theorem << ": " << guarantee.promise << '\n';
  if (answer.iterations) {
    std::cout << "  K = " << count_text(*answer.iterations) << " for eps = " << *flags.precision << "\n  "
              << guarantee.formula << '\n';
  }
  if (answer.bound) {
    std::cout << "  eps = " << *answer.bound << " after K = " << *answer.steps << "\n  " << guarantee.bound_formula
              << '\n';
  }
  std::cout << "  Delta0 = " << answer.constants.initial_gap;
  if (flags.mu) std::cout << ", mu = " << *flags.mu;
  if (flags.zeta) std::cout << ", zeta = " << *flags.zeta;
  if (flags.sigma) std::cout << ", sigma = " << *flags.sigma;
  std::cout << ", momentum " << guarantee.momentum << '\n';
  for (const std::string& note : answer.notes) std::cout << "  note: " << note << '\n';

  const auto& layers = answer.constants.layers;
  std::vector<int> widths = {7, 12, 12, 12, 8, 0};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    widths[0] = std::max(widths[0], static_cast<int>(answer.layer_name(i).size()) + 2);
    widths[4] = std::max(widths[4], static_cast<int>(guarantee.radii[i].size()) + 2);
  }
  std::cout << '\n';
  print_row(widths, {"layer", "L0", "L1", "weight", "radius", "at most"});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    print_row(widths, {answer.layer_name(i), join(layers[i].l0), join(layers[i].l1),
                       guarantee.weights.empty() ? "-" : join(guarantee.weights[i]), guarantee.radii[i],
                       join(guarantee.largest_radii[i])});
  }
  print_flags(answer);
  print_table1(answer);
}

}  // namespace

void add_theory(CLI::App& app) {
  CLI::App* command = app.add_subcommand("theory", "Iteration counts, bounds and radii of the paper's theorems");
  auto flags = std::make_shared<TheoryFlags>();
  command->add_option("--theorem", flags->theorem, "1, 1w (weighted), pl, pl0 (L1 = 0), 2, 2w or 3")->required();
  command->add_option("--L0", flags->l0, "L0 of every layer: a,b,...");
  command->add_option("--L1", flags->l1, "L1 of every layer: a,b,...");
  command->add_option("--run", flags->run, "Take L0, L1 and Delta0 from this run, which recorded smoothness")
      ->check(given_path());
  command->add_option("--delta0", flags->initial_gap, "f(X_0) - inf f");
  command->add_option("--eps", flags->precision, "Precision: print the number of iterations it takes");
  command->add_option("--steps", flags->steps, "Iterations: print the bound after this many")->type_name("COUNT");
  command->add_option("--mu", flags->mu, "Polyak-Lojasiewicz constant (pl, pl0)");
  command->add_option("--zeta", flags->zeta, "Relative noise, in [0, 1) (2, 2w)");
  command->add_option("--sigma", flags->sigma, "Noise level (3)");
  command->add_option("--t", flags->t, "Theorem 3's t of every layer, at most 1 / (12 L1), which is the default");
  command->add_option("--noise-factor", flags->noise_factor,
                      "Theorem 3: 1 for Euclidean norms, sqrt(min(m, n)) for spectral, sqrt(m n) for max_entry");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags] {
    const Answer answer = solve(*flags);
    flags->json ? print_json(*flags, answer) : print_table(*flags, answer);
  });
}

}  // namespace gluon::cli
