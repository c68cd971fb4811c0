// RunDirectory: what a run leaves behind, in one folder.
//
//   config.toml     the resolved config
//   log.csv         step, tokens, loss, val (empty where not evaluated), seconds, optimizer, radius_<role>...
//   checkpoint/     see gluon/checkpoint/checkpoint.h
//   facts.json      machine, version, data and routing: see lab/train/run_facts.h
//   smoothness.csv  with --smoothness-every: see gluon/smoothness/trajectory_csv.h
//   report.html     with --report: see lab/report/page.h
//   events.out.tfevents.gluon  with --tensorboard: see lab/train/event_file.h
//
// A folder that already holds a run is never overwritten: it is resumed or refused. One process at a time writes to
// it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gluon::lab {

struct LogRow {
  int64_t step = 0;    // steps taken
  int64_t tokens = 0;  // tokens (or images) seen
  double loss = 0;     // mean training loss of this step
  std::optional<double> val;
  double seconds = 0;                                 // since the run began, pauses left out
  std::vector<std::pair<std::string, double>> radii;  // by role
  std::optional<double> optimizer;                    // its share of the step's time, where that is measured
};

class RunDirectory {
 public:
  /// Throws InputError when a run is at `path` already.
  static void check_free(const std::filesystem::path& path);

  /// Makes a new run at `path`. Throws InputError when a run is there already or the folder cannot be made.
  static RunDirectory create(const std::filesystem::path& path, const std::string& config);

  /// Opens an existing run to read it. Throws InputError when there is none.
  static RunDirectory open(const std::filesystem::path& path);

  /// Opens an existing run to go on with it. Throws InputError when there is none, or another process writes to it.
  static RunDirectory reopen(const std::filesystem::path& path);

  /// Replaces config.toml, for a run that goes on with other steps or another schedule.
  void set_config(const std::string& config);

  /// Writes facts.json, over that of the part of the run before a restart.
  void set_facts(const std::string& json);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoint"; }
  std::filesystem::path smoothness() const { return path_ / "smoothness.csv"; }

  /// The text of config.toml.
  std::string config() const;

  /// Appends one row and flushes; the first row of a new log writes the header.
  void append(const LogRow& row);

  /// Calls `appended` after each row from now on.
  void on_append(std::function<void(const LogRow&)> appended) { appended_ = std::move(appended); }

  /// The rows of log.csv; half a line at the end, as a killed run leaves it, is left out, and so are columns it does
  /// not know. Throws InputError when the log cannot be read; a run without one has no rows.
  std::vector<LogRow> log() const;

  /// Removes what create() and set_facts() made, for a run that ended before its first step; other files stay.
  void discard();

  /// Drops the rows after `step`, which a killed run wrote beyond its last checkpoint; the seconds of the last row
  /// that stays are returned.
  double rewind(int64_t step);

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  void lock();

  std::filesystem::path path_;
  std::shared_ptr<const int> lock_;  // held while this process may write
  std::function<void(const LogRow&)> appended_;
};

/// Makes the folder runs/<stem>-1, -2, ...: the first that does not exist.
std::filesystem::path make_run_path(const std::string& stem);

}  // namespace gluon::lab
