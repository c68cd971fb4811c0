#include "lab/sweep/probe.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <utility>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "lab/models/zoo.h"
#include "lab/train/effect.h"
#include "lab/train/experiment.h"
#include "lab/train/radius_flag.h"

namespace gluon::lab {
namespace {

constexpr const char* kFactor = "factor";  // the key of --radius

// Shorter runs end while the model still learns the frequencies of single tokens (docs/tuning.md).
constexpr int64_t kShortest = 64, kShortestOfCnn = 100;

std::string percent_text(double percent) { return join(std::setprecision(3), percent, " %"); }

// The factor and what else --radius names; each probe has another factor and the same rest.
struct Radii {
  std::vector<std::string> groups{kFactor};
  std::vector<double> values{1};
};

Radii radii_of(const TrainConfig& run) {
  Radii radii;
  for (const RadiusEntry& entry : radius_entries(run.radius)) {
    GLUON_CHECK(entry.is_number_of_preset(), "tune: --probe takes numbers in --radius, such as factor=2, got ",
                entry.key, "=", entry.value);
    const double value = parse_number(entry.value, "--radius " + entry.key);
    if (entry.key == kFactor) {
      radii.values[0] = value;
    } else {
      radii.groups.push_back(entry.key);
      radii.values.push_back(value);
    }
  }
  return radii;
}

// What a probe changes in the run beside its factor.
TrainConfig probe_config(const TrainConfig& run, int64_t steps) {
  const TrainConfig standard;
  TrainConfig probe = run;
  probe.steps = steps;
  probe.eval_every = steps;        // only the last loss counts
  probe.on_nan = standard.on_nan;  // a probe that diverges must not go on with other radii
  probe.nan_limit = standard.nan_limit;
  probe.smoothness_every = standard.smoothness_every;
  probe.smoothness_start = standard.smoothness_start;
  probe.smoothness_mode = standard.smoothness_mode;
  probe.smoothness_geometry = standard.smoothness_geometry;
  probe.smoothness_dual = standard.smoothness_dual;
  return probe;
}

// What a training run looks at before its first step: the data, and whether the model has the layers of --radius.
void check_run(const TrainConfig& run, const Radii& radii) {
  TrainConfig config = run;
  config.radius = cell_name(radii.groups, radii.values);
  check_radius_effect(config, make_experiment(config).model->layers());
}

// The parabola is not more accurate.
double rounded(double factor) { return parse_number(join(std::setprecision(3), factor), "tune"); }

}  // namespace

double parse_budget(const std::string& text) {
  const auto refuse = [&] {
    throw InputError(
        join("--budget: expected a share of the run's steps above 0% and at most 100%, such as 10%, got '", text, "'"));
  };
  if (!text.ends_with('%')) refuse();
  double percent = 0;
  try {
    percent = parse_number(text.substr(0, text.size() - 1), "--budget");
  } catch (const InputError&) {
    refuse();
  }
  if (!(percent > 0 && percent <= 100)) refuse();
  return percent;
}

ProbePlan plan_probes(const TrainConfig& run, double budget) {
  ProbePlan plan{.run_steps = run.steps, .budget = budget};
  plan.shortest = is_language_model(run.model) ? kShortest : kShortestOfCnn;
  const auto allowed = static_cast<int64_t>(budget * static_cast<double>(run.steps) / 100);
  if (allowed < kFewestTrials * plan.shortest) return plan;
  plan.probes = static_cast<int>(std::min<int64_t>(kMostTrials, allowed / plan.shortest));
  plan.steps = std::max(plan.shortest, allowed / kMostTrials);
  return plan;
}

std::string ProbePlan::sentence() const {
  const auto share = [&](int64_t some) { return 100 * static_cast<double>(some) / static_cast<double>(run_steps); };
  if (probes > 0) {
    const int64_t most = probes * steps;
    return join("tune: up to ", probes, " probes of ", steps, " steps, at most ", most, " of the run's ", run_steps,
                " steps (", percent_text(share(most)), ")");
  }
  const int64_t least = kFewestTrials * shortest;
  const std::string way =
      least <= run_steps ? join("; --budget ", std::ceil(share(least)), "% would hold them") : std::string();
  return join("tune: no probes: the fewest that say something are ", kFewestTrials, " of ", shortest, " steps, ", least,
              " in all, and ", percent_text(budget), " of the run's ", run_steps, " steps are ",
              static_cast<int64_t>(budget * static_cast<double>(run_steps) / 100), way);
}

double first_factor(const TrainConfig& run) {
  GLUON_CHECK(run.preset == "sphere", "tune: --probe finds the factor of preset sphere, got preset ", run.preset,
              "; add --preset sphere --radius auto");
  GLUON_CHECK(run.schedule.empty(), "tune: --probe needs the schedule that belongs to the law, an empty one, got ",
              run.schedule);
  return radii_of(run).values[0];
}

std::string ProbeResult::doubt() const {
  if (search.tried.empty() || search.settled) return {};
  if (search.flat) return "the probes do not tell these factors apart; begin elsewhere with --radius factor=...";
  return join("the budget ended first; a larger --budget, or --radius factor=", factor, " to begin there, goes on");
}

ProbeResult run_probes(const TrainConfig& run, const ProbePlan& plan, const std::filesystem::path& out,
                       Progress& progress, const Announce& announce, const std::atomic<bool>& stop) {
  const double start = first_factor(run);
  GLUON_CHECK(!holds_run(out), "tune: ", out.string(), " holds a run; choose another --out for its probes");
  Radii radii = radii_of(run);
  const TrainConfig probe = probe_config(run, plan.steps);
  if (plan.probes == 0 || !holds_run(out / cell_name(radii.groups, radii.values))) check_run(run, radii);
  ProbeResult result{.search = {}, .factor = start, .tuned = run};
  if (plan.probes > 0) {
    SweepFolder folder("tune", out, radii.groups);
    int count = 0;
    const FactorTrial trial = [&](double factor) -> std::optional<double> {
      if (stop) return std::nullopt;
      radii.values[0] = factor;
      const PlannedCell cell = folder.plan(probe, radii.values);
      const auto ended = folder.run(cell, join("probe ", ++count, ":"), progress, announce, stop);
      if (!ended) return std::nullopt;
      return ended->val;
    };
    result.search = search_factor(start, plan.probes, trial);
    if (result.search.stopped) return result;
    GLUON_CHECK(result.search.factor, "tune: all ", result.search.tried.size(), " probes diverged, from factor ", start,
                " to ", result.search.tried.back().factor, "; begin lower with --radius factor=...");
    result.factor = rounded(*result.search.factor);
  }
  radii.values[0] = result.factor;
  result.tuned.radius = cell_name(radii.groups, radii.values);
  result.tuned.out.clear();
  result.tuned.validate();
  return result;
}

}  // namespace gluon::lab
