#include "lab/reproduce/workbench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "gluon/smoothness/trajectory.h"
#include "gluon/update/optimizer.h"
#include "lab/sweep/folder_lock.h"
#include "lab/train/config_fields.h"
#include "lab/train/effect.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResults = "results.csv";
constexpr std::array<std::string_view, 6> kColumns = {"name", "steps", "loss", "val", "accuracy", "seconds"};

// Of a large model they would fill the disk. Not remove_all(): some LibTorch packages export a broken one of their own.
void discard_checkpoints(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file, error);
  fs::remove(folder, error);
}

// The run's config with the data where it was when the run in config.out began. OUT and DATA may be moved, or given in
// another way; other data has files of other names.
TrainConfig with_saved_places(TrainConfig config) {
  const TrainConfig saved = read_run_config(config.out);
  for (std::string TrainConfig::*place : {&TrainConfig::data, &TrainConfig::val_data}) {
    if (fs::path(config.*place).filename() == fs::path(saved.*place).filename()) config.*place = saved.*place;
  }
  return config;
}

}  // namespace

Workbench::Workbench(WorkbenchOptions options, Progress& progress, Announce announce, const std::atomic<bool>& stop)
    : options_(std::move(options)), progress_(progress), announce_(std::move(announce)), stop_(stop) {
  std::error_code error;
  GLUON_CHECK(!fs::equivalent(options_.data, prepared(), error), "reproduce: ", prepared().string(),
              ", where --out keeps prepared data, is the folder that --data names; choose another --out");
  (void)results();  // fails before anything is trained
}

std::map<std::string, Workbench::Row> Workbench::results() const {
  std::map<std::string, Row> rows;
  const fs::path path = options_.out / kResults;
  if (!fs::exists(path)) return rows;
  CsvReader csv("reproduce", path);
  const std::vector<std::size_t> at = csv.find(kColumns);
  while (csv.next()) {
    const fs::path folder = options_.out / "runs" / csv.text(at[0]);
    if (!holds_run(folder)) continue;
    rows[std::string(csv.text(at[0]))] = {
        csv.integer(at[1]),
        {folder, csv.number(at[2]), csv.number(at[3]), csv.number_or_empty(at[4]), csv.number(at[5])}};
  }
  return rows;
}

TrainConfig Workbench::language() {
  const auto prepare = small() ? prepare_bytes : prepare_tokens;
  if (!corpus_) corpus_ = prepare(options_.data, prepared(), announce_, stop_);
  TrainConfig config;
  config.model = pick("nanogpt-tiny", "nanogpt-124m");
  config.data = corpus_->train;
  config.val_data = corpus_->validation;
  config.val_tokens = corpus_->validation_tokens;
  config.batch = pick(16, 32);
  config.accumulate = pick(1, 2);
  config.steps = pick(300, 4600);
  config.eval_every = pick(50, 230);
  config.save_every = pick(300, 920);
  config.schedule = "constant";
  config.device = options_.device;
  return config;
}

TrainConfig Workbench::images() const {
  TrainConfig config;
  config.model = "cifar-cnn";
  config.data = material("cifar10").string();
  config.momentum = "ema(0.5)";
  config.schedule = "constant";
  config.eval_every = std::numeric_limits<int32_t>::max();  // at the end
  config.save_every = config.eval_every;
  config.device = options_.device;
  return config;
}

RunResult Workbench::train(const std::string& name, TrainConfig config) {
  config.out = (options_.out / "runs" / name).string();
  config.validate();
  check_effect(config);
  if (holds_run(config.out)) check_same_config(with_saved_places(config), "reproduce");
  const std::map<std::string, Row> done = results();  // also of a process that works beside this one
  if (const auto found = done.find(name); found != done.end()) return found->second.result;
  announce_(join("run ", name));
  RunResult result{.folder = config.out, .loss = std::nan(""), .val = std::nan("")};
  try {
    const TrainSummary summary = train_whole(config, progress_, announce_, stop_);
    if (summary.interrupted) throw Stopped();
    result = {config.out, summary.loss, summary.val, summary.accuracy, summary.seconds};
  } catch (const NonFiniteGradient& error) {
    announce_(error.what());
  }
  add_result(name, {config.steps, result});
  discard_checkpoints(fs::path(config.out) / "checkpoint");  // last: a run that is not in the results needs them
  return result;
}

void Workbench::add_result(const std::string& name, const Row& added) const {
  const FolderLock lock(options_.out);  // other processes may have the same OUT
  std::map<std::string, Row> rows = results();
  rows[name] = added;
  std::string text = csv_row(std::vector<std::string>(kColumns.begin(), kColumns.end())) + "\n";
  for (const auto& [run, row] : rows) {
    const auto& [folder, loss, val, accuracy, seconds] = row.result;
    text += csv_row({run, std::to_string(row.steps), number_text(loss), number_text(val),
                     accuracy ? number_text(*accuracy) : std::string(), number_text(seconds)}) +
            "\n";
  }
  write_text_atomically(options_.out / kResults, text);
}

std::vector<Workbench::Trial> Workbench::try_values(const std::string& name, const TrainConfig& config,
                                                    const std::string& key, std::span<const double> values) {
  std::vector<Trial> trials;
  for (const double value : values) {
    TrainConfig one = config;
    if (key == "lr") {
      one.lr = value;
    } else {
      one.radius = join(config.radius, config.radius.empty() ? "" : ",", key, "=", number_text(value));
    }
    trials.push_back({value, train(join(name, "-", number_text(value)), one)});
  }
  return trials;
}

const Workbench::Trial& best_of(std::span<const Workbench::Trial> trials) {
  const Workbench::Trial* best = nullptr;
  for (const Workbench::Trial& trial : trials) {
    if (std::isfinite(trial.result.val) && (best == nullptr || trial.result.val < best->result.val)) best = &trial;
  }
  GLUON_CHECK(best != nullptr, "reproduce: all ", trials.size(), " runs have diverged");
  return *best;
}

TrajectoryFit fits_of(const RunResult& run, const FitOptions& options) {
  return fit_trajectory(read_trajectory(run.folder), options);
}

}  // namespace gluon::lab
