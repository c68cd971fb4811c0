// ReportData: all a report shows, collected from runs, sweeps and the authors' logs.
//
//   paths -> collect_report -> report_json -> the page (web/)
//                           -> text_report -> a terminal
//
// Constants are those of `gluon fit` and radii those of `gluon tune`, with the same options.

#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "gluon/fit/radii.h"
#include "lab/report/group_course.h"
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
  std::string unfitted;  // why there is no fit
  int64_t unmoved = 0;   // samples the fit left out
  std::vector<Sample> samples;
};

struct ReportRun {
  std::string name;  // short, unlike those of the other runs
  std::filesystem::path path;
  std::string config;  // config.toml; empty when the source has none
  std::string facts;   // facts.json (lab/train/run_facts.h), JSON; empty when the source has none
  std::vector<LogRow> log;
  Estimator estimator = Estimator::kUnknown;
  std::vector<ReportLayer> layers;
  std::vector<GroupRadius> radii;
  std::vector<GroupCourse> courses;
  std::vector<std::string> notes;  // what is missing or left out, in sentences
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

/// Each path is a run directory, a sweep's folder, a smoothness.csv or a log of the authors. Throws InputError when one
/// does not exist, is given twice, cannot be read, or holds nothing to show.
ReportData collect_report(std::span<const std::filesystem::path> paths, const FitOptions& fit = {});

/// The validation losses of an authors' log ("step:50/5001 val_loss:5.8121 train_time:40110ms"); training losses and
/// tokens are not known there: NaN and 0.
std::vector<LogRow> read_paper_losses(const std::filesystem::path& path);

}  // namespace gluon::lab
