#include "lab/report/report_data.h"

#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gluon/core/check.h"
#include "gluon/fit/full_radius.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/train/config_toml.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, "report: cannot read ", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number after `key` in a line of the authors' log.
std::optional<double> number_after(const std::string& line, std::string_view key) {
  const auto at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  double value = 0;
  const char* begin = line.data() + at + key.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), value);
  return error == std::errc() && end != begin ? std::optional(value) : std::nullopt;
}

// The validation losses of an authors' log ("step:50/5001 val_loss:5.8121 train_time:40110ms"), which has no training
// losses and tokens.
std::vector<LogRow> read_paper_losses(const fs::path& path) {
  std::istringstream lines(text_of(path));
  std::vector<LogRow> rows;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    if (!line.starts_with("step:")) continue;
    const auto step = number_after(line, "step:");
    const auto val = number_after(line, " val_loss:");
    if (!step || !val) continue;
    const auto milliseconds = number_after(line, "train_time:");
    rows.push_back({.step = static_cast<int64_t>(*step),
                    .tokens = 0,
                    .loss = Sample::kMissing,
                    .val = val,
                    .seconds = milliseconds ? *milliseconds / 1000 : Sample::kMissing,
                    .radii = {}});
  }
  return rows;
}

void add_layers(ReportRun& run, const Trajectory& trajectory, bool paper_log, const FitOptions& options) {
  const TrajectoryFit fits = fit_trajectory(trajectory, options);
  std::map<std::string, const LayerFit*> fitted;
  std::map<std::string, const UnfittedLayer*> unfitted;
  for (const LayerFit& fit : fits.layers) fitted[fit.layer] = &fit;
  for (const UnfittedLayer& layer : fits.unfitted) unfitted[layer.layer] = &layer;
  run.estimator = trajectory.estimator;
  for (const LayerTrajectory& layer : trajectory.layers) {
    ReportLayer& added = run.layers.emplace_back();
    added.name = layer.layer;
    added.group = layer.group;
    added.norm = layer.norm;
    added.dual_method = layer.dual_method;
    added.place = paper_log ? place_in_paper_log(layer.layer, trajectory.layers.size()) : place_of(layer.layer);
    added.samples = layer.samples;
    if (const auto fit = fitted.find(layer.layer); fit != fitted.end()) {
      added.fit = fit->second->fit;
      added.unmoved = fit->second->unmoved;
    } else if (const auto reason = unfitted.find(layer.layer); reason != unfitted.end()) {
      added.unfitted = reason->second->reason;
    }
  }
}

// As `gluon tune` predicts them. Theorem 1's radii follow the gradient: there a smaller one is no sign of a cooldown.
void add_radii(ReportRun& run, const TrainConfig& config, const Trajectory& trajectory, const FitOptions& options) {
  FullRadiusSamples selection{trajectory};
  if (config.preset != "deterministic_gluon") selection = at_full_radius(trajectory);
  if (selection.kept < selection.all) {
    run.notes.push_back(join("Predicted radii leave out ", selection.all - selection.kept, " of ", selection.all,
                             " samples, from warmup and cooldown."));
  }
  const TrajectoryFit fits = fit_trajectory(selection.trajectory, options);
  run.histories = group_histories(trajectory, fits);
  try {
    run.radii = predict_radii(fits);
  } catch (const InputError& error) {
    run.notes.push_back(join("No radii are predicted: ", error.what(), "."));
  }
  if (!config.smoothness_geometry.empty()) {
    run.notes.emplace_back(
        "Smoothness was measured in other norms than the run's own (smoothness-geometry): predicted and used "
        "radii are lengths in different norms.");
  }
  if (run.estimator == Estimator::kConsecutive) {
    run.notes.emplace_back(
        "The samples are `consecutive`: the change of the gradient is mostly noise between batches, and "
        "predicted radii are about 0.7 of the used ones at any radius.");
  }
}

// The config of a run; the defaults where it cannot be read, which the notes say.
TrainConfig config_of(ReportRun& run) {
  TrainConfig config;
  try {
    parse_config_toml(run.config, "config.toml", config);
  } catch (const InputError& error) {
    run.notes.push_back(join("The config cannot be read: ", error.what(), "."));
  }
  return config;
}

bool is_csv(const fs::path& path) { return path.extension() == ".csv"; }

ReportRun read_run(const fs::path& path, const FitOptions& options) {
  ReportRun run;
  run.path = path;
  const bool folder = fs::is_directory(path);
  const bool paper_log = !folder && !is_csv(path);
  if (folder && fs::exists(path / "config.toml")) {
    const RunDirectory directory = RunDirectory::open(path);
    run.config = directory.config();
    run.log = directory.log();
    if (fs::exists(path / "facts.json")) run.facts = text_of(path / "facts.json");
    if (!run.facts.empty() && !nlohmann::json::accept(run.facts)) {
      run.facts.clear();
      run.notes.emplace_back("facts.json is damaged: machine, data and routing are not shown.");
    }
  } else if (paper_log) {
    run.log = read_paper_losses(path);
  }
  if (folder && !fs::exists(path / "smoothness.csv")) {
    GLUON_CHECK(!run.log.empty(), "report: ", path.string(), " has neither a log nor samples yet");
    run.notes.emplace_back("No smoothness was recorded (gluon train --smoothness-every N).");
    return run;
  }
  const Trajectory trajectory = read_trajectory(path);
  add_layers(run, trajectory, paper_log, options);
  add_radii(run, config_of(run), trajectory, options);
  return run;
}

std::string short_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  if (last == "smoothness.csv" || last == "sweep.csv") return whole.parent_path().filename().string();
  return last.string();
}

// Runs with the same short name get their paths as names.
void name_runs(std::vector<ReportRun>& runs) {
  std::map<std::string, int> uses;
  for (const ReportRun& run : runs) ++uses[short_name(run.path)];
  for (ReportRun& run : runs) {
    run.name = short_name(run.path);
    if (uses[run.name] > 1) run.name = run.path.lexically_normal().string();
  }
}

}  // namespace

ReportData collect_report(std::span<const fs::path> paths, const FitOptions& fit) {
  fit.validate();
  GLUON_CHECK(!paths.empty(), "report: expected at least one run");
  ReportData data{fit, {}, {}};
  std::set<fs::path> seen;
  for (const fs::path& path : paths) {
    GLUON_CHECK(fs::exists(path), "report: ", path.string(), " does not exist");
    GLUON_CHECK(seen.insert(fs::canonical(path)).second, "report: ", path.string(), " is given twice");
    const bool folder = fs::is_directory(path);
    if (path.filename() == "sweep.csv" || (folder && fs::exists(path / "sweep.csv"))) {
      data.sweeps.push_back({short_name(path), read_sweep_csv(folder ? path / "sweep.csv" : path)});
      continue;
    }
    GLUON_CHECK(!folder || fs::exists(path / "config.toml") || fs::exists(path / "smoothness.csv"),
                "report: ", path.string(), " holds neither a run (config.toml) nor a sweep (sweep.csv)");
    data.runs.push_back(read_run(path, fit));
  }
  name_runs(data.runs);
  return data;
}

}  // namespace gluon::lab
