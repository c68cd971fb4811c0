// ReportData: the content of a report, collected from runs, sweeps and the authors' logs.
//
//   paths -> collect_report -> report_json -> the page (web/)
//                           -> text_report -> a terminal
//
// With the same options, the constants are those of `gluon fit` and the radii those of `gluon tune`.

#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "gluon/fit/radii.h"
#include "lab/report/group_history.h"
#include "lab/report/layer_place.h"
#include "lab/sweep/sweep_csv.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {

struct ReportLayer {
  std::string name;
  std::string group;
  std::string norm;
  std::string dual_method;
  LayerPlace place;
  std::optional<Fit> fit;
  std::string unfitted;  // reason why there is no fit
  int64_t unmoved = 0;   // samples that the fit left out
  std::vector<Sample> samples;
};

struct ReportRun {
  std::string name;  // short and unique
  std::filesystem::path path;
  std::string config;  // config.toml; empty when the source has none
  std::string facts;   // facts.json (lab/train/run_facts.h), JSON; empty when the source has none
  std::vector<LogRow> log;
  Estimator estimator = Estimator::kUnknown;
  std::vector<ReportLayer> layers;
  std::vector<GroupRadius> radii;
  std::vector<GroupHistory> histories;
  std::vector<std::string> notes;  // sentences about missing or omitted data
};

struct ReportSweep {
  std::string name;
  SweepTable table;
};

struct ReportData {
  FitOptions fit;
  std::vector<ReportRun> runs;
  std::vector<ReportSweep> sweeps;
};

/// Each path is a run directory, a sweep's folder, a smoothness.csv or a log of the authors. Throws InputError when a
/// path does not exist, is given twice, cannot be read, or has no data.
ReportData collect_report(std::span<const std::filesystem::path> paths, const FitOptions& fit = {});

}  // namespace gluon::lab
