// Probe: the factor on the law of preset sphere for one model and its data, from short runs.
//
//   budget, a share of the run's steps -> ProbePlan -> search_factor() over runs in a SweepFolder -> the run's config
//
// Each probe is a whole run of its own: the law at its own length, radii falling to 0 over it, the same seed, batches and
// validation data as the run and as all other probes. The losses at their ends are compared.

#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lab/sweep/factor_search.h"
#include "lab/sweep/sweep_folder.h"
#include "lab/train/config.h"

namespace gluon::lab {

/// "10%" -> 10. Throws InputError on anything that is not above 0% and at most 100%.
double parse_budget(const std::string& text);

struct ProbePlan {
  int64_t run_steps = 0;
  double budget = 0;     // percent of run_steps
  int64_t shortest = 0;  // steps below which a run says nothing
  int64_t steps = 0;     // of a probe
  int probes = 0;        // at most; 0: the budget is too small

  /// What the probes cost at most, or why there are none, in one sentence.
  std::string sentence() const;
};

/// Nine probes, as long as the budget allows; fewer when they would be too short.
ProbePlan plan_probes(const TrainConfig& run, double budget);

/// The factor that config.radius begins with, 1 unless it names one. Throws InputError unless the run's preset is sphere
/// with its own schedule and plain numbers for radii.
double first_factor(const TrainConfig& run);

struct ProbeResult {
  FactorSearch search;
  double factor = 0;  // for the run, three digits; that of first_factor() when there are no probes
  TrainConfig tuned;  // the run with this factor; not yet when a probe was stopped

  /// Why the factor may be far from the best, and what to do; empty where the search has settled, or there was none.
  std::string doubt() const;
};

/// Runs the probes in the folder `out`; those that have ended are read. Throws InputError when `out` holds a run or other
/// probes, when all probes diverge, and where a training run would, also when there are no probes.
ProbeResult run_probes(const TrainConfig& run, const ProbePlan& plan, const std::filesystem::path& out,
                       Progress& progress, const Announce& announce, const std::atomic<bool>& stop);

}  // namespace gluon::lab
