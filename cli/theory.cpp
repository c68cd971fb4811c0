#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/commands.h"
#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/fit/fit.h"
#include "gluon/smoothness/trajectory.h"
#include "gluon/theory/deterministic.h"
#include "gluon/theory/guarantee.h"
#include "gluon/theory/prior_rates.h"
#include "gluon/theory/stochastic.h"
#include "lab/train/run_directory.h"

namespace gluon::cli {
namespace {

using theory::Constants;
using theory::Guarantee;
using theory::PriorRate;

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
  std::vector<std::string> layers;  // names
  std::vector<std::string> notes;
  Guarantee guarantee;
  std::optional<double> iterations;  // for --eps
  std::optional<int64_t> steps;      // of --steps
  std::optional<double> bound;       // for --steps
  std::vector<PriorRate> prior;      // for --eps, where earlier results promise the same
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

// All whole numbers up to here are exact in double.
constexpr double kMostSteps = 1e15;

int64_t parse_steps(const std::string& text) {
  const double steps = parse_number(text, "theory: --steps");
  GLUON_CHECK(steps >= 1 && steps <= kMostSteps && std::floor(steps) == steps,
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

// One value per layer, or one for all of them.
void read_per_layer(Constants& constants, const std::string& text, const std::string& flag,
                    const std::function<void(theory::LayerConstants&, double)>& set) {
  if (text.empty()) return;
  const std::vector<double> numbers = parse_list(text, flag);
  const std::size_t layers = constants.layers.size();
  GLUON_CHECK(numbers.size() == layers || numbers.size() == 1, "theory: ", flag,
              " must have 1 number or one per layer (", layers, "), got ", numbers.size());
  for (std::size_t i = 0; i < layers; ++i) {
    set(constants.layers[i], numbers[numbers.size() == 1 ? 0 : i]);
  }
}

void constants_from_flags(const TheoryFlags& flags, Answer& answer) {
  GLUON_CHECK(!flags.l0.empty() && !flags.l1.empty(),
              "theory: expected --L0 and --L1 (one number per layer: a,b,...) or --run");
  const std::vector<double> l0 = parse_list(flags.l0, "--L0"), l1 = parse_list(flags.l1, "--L1");
  GLUON_CHECK(l0.size() == l1.size(), "theory: --L0 and --L1 must have the same length, got ", l0.size(), " and ",
              l1.size());
  for (std::size_t i = 0; i < l0.size(); ++i) {
    answer.constants.layers.push_back({.l0 = l0[i], .l1 = l1[i]});
    answer.layers.push_back(std::to_string(i + 1));
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
    answer.layers.push_back(layer.layer);
  }
  for (const UnfittedLayer& layer : fits.unfitted) {
    answer.notes.push_back("layer '" + layer.layer + "' is left out: " + layer.reason);
  }
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
  read_per_layer(answer.constants, flags.t, "--t", [](auto& layer, double value) { layer.t = value; });
  read_per_layer(answer.constants, flags.noise_factor, "--noise-factor",
                 [](auto& layer, double value) { layer.noise_factor = value; });
  answer.guarantee = make_guarantee(flags, answer.constants);
  if (flags.theorem == "3" && flags.noise_factor.empty()) {
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
    answer.prior = theory::prior_rates(answer.constants, noise, *flags.precision);
  }
  return answer;
}

// All digits as long as they are exact.
std::string count_text(double count) {
  std::ostringstream out;
  if (count < 1e14) {
    out << static_cast<int64_t>(count);
  } else {
    out << std::setprecision(6) << count;
  }
  return out.str();
}

nlohmann::json count_json(double count) {
  if (count < 1e14) return static_cast<int64_t>(count);
  return count;
}

template <typename Value> nlohmann::json optional_json(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

void print_json(const TheoryFlags& flags, const Answer& answer) {
  const Guarantee& guarantee = answer.guarantee;
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t i = 0; i < answer.layers.size(); ++i) {
    const theory::LayerConstants& layer = answer.constants.layers[i];
    nlohmann::json row = {{"layer", answer.layers[i]},
                          {"L0", layer.l0},
                          {"L1", layer.l1},
                          {"radius", guarantee.radii[i]},
                          {"largest_radius", guarantee.largest_radii[i]}};  // null when there is none
    if (!guarantee.weights.empty()) row["weight"] = guarantee.weights[i];
    layers.push_back(std::move(row));
  }
  nlohmann::json prior = nlohmann::json::array();
  for (const PriorRate& row : answer.prior) {
    prior.push_back({{"result", row.source},
                     {"stochastic", row.stochastic},
                     {"rate", row.rate},
                     {"radius", row.radius},
                     {"one_minus_beta", row.one_minus_beta},
                     {"applies", row.obstacle.empty()},
                     {"obstacle", row.obstacle.empty() ? nlohmann::json(nullptr) : nlohmann::json(row.obstacle)},
                     {"K", row.iterations ? count_json(*row.iterations) : nlohmann::json(nullptr)}});
  }
  const nlohmann::json json = {
      {"theorem", flags.theorem},
      {"promise", guarantee.promise},
      {"formula", guarantee.formula},
      {"bound_formula", guarantee.bound_formula},
      {"K", answer.iterations ? count_json(*answer.iterations) : nlohmann::json(nullptr)},
      {"eps", optional_json(flags.precision)},
      {"steps", optional_json(answer.steps)},
      {"bound", optional_json(answer.bound)},
      {"delta0", answer.constants.initial_gap},
      {"mu", optional_json(flags.mu)},
      {"zeta", optional_json(flags.zeta)},
      {"sigma", optional_json(flags.sigma)},
      {"momentum", guarantee.momentum},
      {"layers", layers},
      {"prior", prior},
      {"notes", answer.notes},
  };
  std::cout << json.dump(2) << '\n';
}

void print_prior(const Answer& answer) {
  if (answer.prior.empty()) return;
  std::cout << "\nearlier results (table 1), for sum_i E|grad_i f|* <= eps with one L for all layers\n"
            << std::left << std::setw(26) << "result" << std::setw(10) << "rate" << std::setw(18) << "radius"
            << std::setw(18) << "1 - beta"
            << "K\n";
  for (const PriorRate& row : answer.prior) {
    std::string count = row.obstacle.empty() ? "constants not given" : "does not apply: " + row.obstacle;
    if (row.iterations) count = count_text(*row.iterations);
    std::cout << std::setw(26) << row.source << std::setw(10) << row.rate << std::setw(18) << row.radius
              << std::setw(18) << row.one_minus_beta << count << '\n';
  }
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

  std::size_t width = 5, radius_width = 6;
  for (const std::string& name : answer.layers) width = std::max(width, name.size());
  for (const std::string& radius : guarantee.radii) radius_width = std::max(radius_width, radius.size());
  const auto name_width = static_cast<int>(width + 2), text_width = static_cast<int>(radius_width + 2);
  std::cout << '\n'
            << std::left << std::setw(name_width) << "layer" << std::setw(12) << "L0" << std::setw(12) << "L1"
            << std::setw(12) << "weight" << std::setw(text_width) << "radius"
            << "at most\n";
  for (std::size_t i = 0; i < answer.layers.size(); ++i) {
    const theory::LayerConstants& layer = answer.constants.layers[i];
    std::cout << std::setw(name_width) << answer.layers[i] << std::setw(12) << layer.l0 << std::setw(12) << layer.l1
              << std::setw(12) << (guarantee.weights.empty() ? "-" : join(guarantee.weights[i]))
              << std::setw(text_width) << guarantee.radii[i] << guarantee.largest_radii[i] << '\n';
  }
  print_prior(answer);
}

}  // namespace

void add_theory(CLI::App& app) {
  CLI::App* command = app.add_subcommand("theory", "Iteration counts, bounds and radii of the paper's theorems");
  auto flags = std::make_shared<TheoryFlags>();
  command->add_option("--theorem", flags->theorem, "1, 1w (weighted), pl, pl0 (L1 = 0), 2, 2w or 3")->required();
  command->add_option("--L0", flags->l0, "L0 of every layer: a,b,...");
  command->add_option("--L1", flags->l1, "L1 of every layer: a,b,...");
  command->add_option("--run", flags->run, "Take L0, L1 and Delta0 from this run, which recorded smoothness");
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
