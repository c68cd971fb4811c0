// ReportData: the content of a report, collected from runs, sweeps and the authors' logs.
//
//   paths -> collect_report -> report_json -> the page (web/)
//                           -> text_report -> a terminal
//
// With the same options, the constants are those of `gluon fit` and the radii those of `gluon tune`.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "gluon/fit/radii.h"
#include "lab/report/report_sources.h"
#include "lab/sweep/sweep.h"
#include "lab/train/run_directory.h"
#include "lab/train/run_status.h"
#include "lab/train/settings.h"

namespace gluon::lab {

/// The position of a layer in its network: "blocks.3.attn.q.weight" is block 3, type attn.q.
struct LayerPlace {
  int block = -1;    // -1: outside the blocks
  std::string type;  // the name without block and ".weight"
};

/// From the layer's name. The authors' logs number the layers instead: their NanoGPT-124M has 73, six in each of twelve
/// blocks, then the tied embedding. `paper_layers` is the number of layers of such a log, 0 for other sources.
LayerPlace place_of(const std::string& layer, std::size_t paper_layers = 0);

/// Alignment and radii of a group of layers over a run, as medians over its layers at each sampled step.
struct GroupHistory {
  std::string group;
  std::vector<int64_t> steps;     // ascending; the columns below have one value per step, NaN if unknown
  std::vector<double> alignment;  // -<g, d> / (|g|* |d|)
  std::vector<double> used;       // radius
  std::vector<double> predicted;  // |g|* / (L0 + L1 |g|*) with the constants of `fits`
};

/// One entry per group, in the order of their first layer.
std::vector<GroupHistory> group_histories(const Trajectory& trajectory, const TrajectoryFit& fits);

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
  std::string facts;   // facts.json (lab/train/run_directory.h); empty when the source has none
  std::vector<LogRow> log;
  RunStatus status;
  Settings settings;  // the config with its defaults resolved; empty when the source has none
  Estimator estimator = Estimator::kUnknown;
  std::vector<ReportLayer> layers;
  std::vector<GroupRadius> radii;
  std::vector<GroupHistory> histories;
  std::vector<std::string> notes;  // sentences about missing or omitted data
};

/// A cell of a sweep beside its row in sweep.csv.
struct ReportCell {
  std::optional<ReportRun> run;  // without samples, its log thinned; nothing when its folder is gone
  std::string failed;            // why it has no validation loss; empty: it has one
};

struct ReportSweep {
  std::string name;
  SweepTable table;
  std::vector<ReportCell> cells;  // one for each of the table; none when only the table is known
};

struct ReportData {
  FitOptions fit;
  std::vector<ReportRun> runs;
  std::vector<ReportSweep> sweeps;
  std::vector<std::string> skipped;  // sentences about what a folder of runs holds beside them
};

/// Each path is a run directory, a sweep's folder, a folder of such folders, a smoothness.csv or a log of the authors
/// (report_sources.h). Throws InputError when a path does not exist, is given twice, cannot be read, or has no data;
/// what cannot be read inside a folder of runs is skipped.
ReportData collect_report(std::span<const std::filesystem::path> paths, const FitOptions& fit = {});

/// Throws InputError when the run cannot be read or has no data.
ReportRun read_run(const ReportSource& source, const FitOptions& fit);

/// Config, status, facts and log of the run directory `path`, without its samples.
ReportRun read_run_files(const std::filesystem::path& path);

/// With the runs of its cells. Throws InputError as read_sweep_csv does.
ReportSweep read_sweep(const ReportSource& source);

/// `value` with four significant digits, as tables and figures show numbers.
std::string rounded(double value, int digits = 4);

}  // namespace gluon::lab
