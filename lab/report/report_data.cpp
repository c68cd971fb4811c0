#include "lab/report/report_data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <map>
#include <sstream>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/json.h"
#include "gluon/fit/median.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/train/config_fields.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// Also checks that it fits into an int.
bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 7 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "step:50/5001 val_loss:5.8121 train_time:40110ms" of an authors' log, which has no training losses and tokens.
std::optional<LogRow> paper_loss(const std::string& line) {
  LogRow row{.loss = Sample::kMissing, .seconds = Sample::kMissing};
  int place = 0;
  double val = 0, milliseconds = 0;
  const char* const end = line.data() + line.size();
  if (!line.starts_with("step:")) return std::nullopt;
  const auto [rest, error] = std::from_chars(line.data() + 5, end, row.step);
  if (error != std::errc()) return std::nullopt;
  if (std::sscanf(rest, "/%*[0-9] val_loss:%lf%n", &val, &place) < 1) return std::nullopt;
  row.val = val;
  if (std::sscanf(rest + place, " train_time:%lf", &milliseconds) == 1) row.seconds = milliseconds / 1000;
  return row;
}

std::vector<LogRow> read_paper_losses(const fs::path& path) {
  std::ifstream lines(path, std::ios::binary);
  std::vector<LogRow> rows;
  for (std::string line; read_line(lines, line, join("report: ", path.string()));) {
    if (const auto row = paper_loss(line)) rows.push_back(*row);
  }
  return rows;
}

void add_layers(ReportRun& run, const Trajectory& trajectory, bool paper_log, const FitOptions& options) {
  run.estimator = trajectory.estimator;
  std::map<std::string, std::size_t> index;
  for (const LayerTrajectory& layer : trajectory.layers) {
    index[layer.layer] = run.layers.size();
    run.layers.push_back({.name = layer.layer,
                          .group = layer.group,
                          .norm = layer.norm,
                          .dual_method = layer.dual_method,
                          .place = place_of(layer.layer, paper_log ? trajectory.layers.size() : 0),
                          .fit = {},
                          .unfitted = {},
                          .samples = layer.samples});
  }
  const TrajectoryFit fits = fit_trajectory(trajectory, options);
  for (const UnfittedLayer& layer : fits.unfitted) run.layers[index.at(layer.layer)].unfitted = layer.reason;
  for (const LayerFit& fit : fits.layers) {
    run.layers[index.at(fit.layer)].fit = fit.fit;
    run.layers[index.at(fit.layer)].unmoved = fit.unmoved;
  }
}

// As `gluon tune` predicts them.
void add_radii(ReportRun& run, const TrainConfig& config, const Trajectory& trajectory, const FitOptions& options) {
  FullRadiusSamples selection{trajectory};
  const int64_t rollbacks = run.config.empty() ? 0 : RunDirectory::open(run.path).rollbacks();
  if (!config.radii_follow_gradients()) selection = at_full_radius(trajectory, rollbacks);
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

// The config of a run; the defaults where it cannot be read, and then `error` says why.
TrainConfig config_of(const std::string& text, std::string* error = nullptr) {
  TrainConfig config;
  try {
    parse_config_toml(text, "config.toml", config);
  } catch (const InputError& reason) {
    if (error != nullptr) *error = reason.what();
  }
  return config;
}

Settings settings_of(const TrainConfig& config) {
  try {
    return resolved_settings(config);
  } catch (const std::exception&) {  // sizes or names that no program of this version writes
    return written_settings(config);
  }
}

void add_settings_and_status(ReportRun& run) {
  std::string error, note;
  const TrainConfig config = config_of(run.config, &error);
  if (!error.empty()) run.notes.push_back(join("The config cannot be read: ", error, "."));
  run.settings = settings_of(config);
  run.status = read_run_status(run.path, run.log, config.steps, note);
  if (!note.empty()) run.notes.push_back(std::move(note));
}

// Without them, which a note says, when they cannot be read.
void read_facts(ReportRun& run) {
  try {
    std::string facts = read_text(run.path / "facts.json", "report");
    if (!facts.empty()) (void)parse_json(facts, "facts.json");
    run.facts = std::move(facts);
  } catch (const InputError&) {
    run.notes.emplace_back("facts.json is damaged: machine, data and routing are not shown.");
  }
}

// Whether a CSV has a complete line after its header: a run that begins or was killed may have less.
bool has_rows(const fs::path& csv) {
  if (!fs::exists(csv)) return false;
  check_regular(csv, "report");
  std::ifstream file(csv);
  std::string line;
  for (int lines = 0; lines < 2; ++lines) std::getline(file, line);
  return file.good();
}

}  // namespace

LayerPlace place_of(const std::string& layer, std::size_t paper_layers) {
  constexpr std::size_t kPaperLayers = 73;
  constexpr std::array kPaperTypes = {"attn.c_q", "attn.c_k", "attn.c_v", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
  if (paper_layers == kPaperLayers && is_number(layer)) {
    const int block = std::stoi(layer) / static_cast<int>(kPaperTypes.size());
    if (block >= 12) return {-1, "wte"};
    return {block, kPaperTypes[std::stoul(layer) % kPaperTypes.size()]};
  }
  LayerPlace place;
  std::istringstream parts(layer);
  for (std::string part; std::getline(parts, part, '.');) {
    if (is_number(part) && place.block < 0) {
      place.block = std::stoi(part);
      place.type.clear();  // "blocks", "h", "layers": the same for all
    } else {
      place.type += (place.type.empty() ? "" : ".") + part;
    }
  }
  constexpr std::string_view kWeight = ".weight";
  if (place.type.ends_with(kWeight)) place.type.resize(place.type.size() - kWeight.size());
  if (place.type.empty()) return {-1, layer};
  return place;
}

std::vector<GroupHistory> group_histories(const Trajectory& trajectory, const TrajectoryFit& fits) {
  struct Cell {
    std::vector<double> alignment, used, predicted;
  };
  const auto add_known = [](std::vector<double>& values, double value) {
    if (!std::isnan(value)) values.push_back(value);
  };
  std::map<std::string, Fit> fitted;
  for (const LayerFit& layer : deciding_fits(fits)) fitted[layer.layer] = layer.fit;
  std::vector<GroupHistory> histories;
  std::map<std::string, std::map<int64_t, Cell>> groups;
  for (const LayerTrajectory& layer : trajectory.layers) {
    if (!groups.contains(layer.group)) histories.emplace_back().group = layer.group;
    const auto fit = fitted.find(layer.layer);
    for (const Sample& sample : layer.samples) {
      Cell& cell = groups[layer.group][sample.step];
      add_known(cell.alignment, sample.alignment);
      add_known(cell.used, sample.radius);
      if (fit == fitted.end()) continue;
      add_known(cell.predicted, predicted_radius(fit->second.l0, fit->second.l1, sample.gradient));
    }
  }
  for (GroupHistory& history : histories) {
    for (const auto& [step, cell] : groups[history.group]) {
      history.steps.push_back(step);
      history.alignment.push_back(median(cell.alignment));
      history.used.push_back(median(cell.used));
      history.predicted.push_back(median(cell.predicted));
    }
  }
  return histories;
}

ReportRun read_run_files(const fs::path& path) {
  const RunDirectory directory = RunDirectory::open(path);
  ReportRun run;
  run.path = path;
  run.config = directory.config();
  run.log = directory.log();
  add_settings_and_status(run);
  if (fs::exists(path / "facts.json")) read_facts(run);
  return run;
}

ReportRun read_run(const ReportSource& source, const FitOptions& options) {
  const fs::path& path = source.path;
  ReportRun run;
  run.path = path;
  const bool folder = fs::is_directory(path);
  const bool paper_log = !folder && path.extension() != ".csv";
  if (folder && fs::exists(path / "config.toml")) {
    run = read_run_files(path);
  } else if (paper_log) {
    run.log = read_paper_losses(path);
    run.status.step = run.log.empty() ? 0 : run.log.back().step;
  }
  run.name = source.name;
  if (folder && !has_rows(path / "smoothness.csv")) {
    GLUON_CHECK(!run.log.empty() || run.status.state != RunState::kUnknown, "report: ", path.string(),
                " has neither a log nor samples yet");
    run.notes.emplace_back(fs::exists(path / "smoothness.csv")
                               ? "No smoothness has been recorded yet."
                               : "No smoothness was recorded (gluon train --smoothness-every N).");
    return run;
  }
  const Trajectory trajectory = read_trajectory(path);
  add_layers(run, trajectory, paper_log, options);
  add_radii(run, config_of(run.config), trajectory, options);
  return run;
}

ReportData collect_report(std::span<const fs::path> paths, const FitOptions& fit) {
  fit.validate();
  GLUON_CHECK(!paths.empty(), "report: expected at least one run");
  ReportData data{fit, {}, {}, {}};
  const ReportSources found = find_sources(paths);
  for (const SkippedSource& one : found.skipped) {
    GLUON_CHECK(!one.given, "report: ", one.sentence());
    data.skipped.push_back(one.sentence());
  }
  for (const ReportSource& source : found.sources) {
    try {
      if (source.sweep) {
        data.sweeps.push_back(read_sweep(source));
      } else {
        data.runs.push_back(read_run(source, fit));
      }
    } catch (const std::runtime_error& error) {  // InputError, or a folder that vanishes
      if (source.given) throw;
      data.skipped.push_back(join(source.path.string(), " cannot be read: ", error.what()));
    }
  }
  GLUON_CHECK(!data.runs.empty() || !data.sweeps.empty(), "report: there is nothing to show: ", data.skipped.back());
  return data;
}

std::string rounded(double value, int digits) { return join(std::setprecision(digits), value); }

}  // namespace gluon::lab
