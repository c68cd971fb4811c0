// RunDirectory: the files of a run in one folder.
//
//   config.toml     the resolved config
//   log.csv         step, tokens, loss, val (empty where not evaluated), seconds, optimizer, radius_<role>...
//   checkpoint/     see gluon/checkpoint/checkpoint.h
//   status.json     whether the run trains, has ended, and how: see run_status.h
//   facts.json      machine, version, data and routing: see set_facts()
//   smoothness.csv  with --smoothness-every: see gluon/smoothness/trajectory.h
//   report.html     with --report: see lab/report/page.h
//   events.out.tfevents.gluon  with --tensorboard: see lab/train/event_file.h
//
// A folder that already holds a run is never overwritten. One process at a time writes to it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::lab {

inline constexpr const char* kEventFile = "events.out.tfevents.gluon";

struct LogRow {
  int64_t step = 0;    // steps taken
  int64_t tokens = 0;  // tokens (or images) seen
  double loss = 0;     // mean training loss of this step
  std::optional<double> val{};
  double seconds = 0;                                   // of training, without pauses
  std::vector<std::pair<std::string, double>> radii{};  // by role
  std::optional<double> optimizer{};                    // the optimizer's share of the step's time, if measured
};

/// What the report shows beside the config.
struct RunFacts {
  std::string device;     // "cpu" or "cuda"
  std::string precision;  // of losses
  std::string data;       // Dataset::describe()
  std::string routing;    // Optimizer::routing_report()
};

class RunDirectory {
 public:
  /// Whether a file or folder of a run is called `file`: "log.csv".
  static bool is_name(std::string_view file);

  /// Throws InputError when a run or a sweep is at `path` already, or another file of a name that runs use.
  static void check_free(const std::filesystem::path& path);

  /// Creates a run at `path`. Throws InputError when there is one already or the folder cannot be created.
  static RunDirectory create(const std::filesystem::path& path, const std::string& config);

  /// Opens an existing run to read it. Throws InputError when there is none.
  static RunDirectory open(const std::filesystem::path& path);

  /// Opens an existing run to continue it. Throws InputError when there is none, or another process writes to it.
  static RunDirectory reopen(const std::filesystem::path& path);

  /// Replaces config.toml, for a run that resumes with other steps or another schedule.
  void set_config(const std::string& config);

  /// Writes facts.json, with the version, this machine's processor and the number of threads: {"version": "0.1.0",
  /// "machine": "AMD EPYC ...", "threads": 2, "device": "cpu", "precision": "float32", "data": "...", "routing": "..."}
  void set_facts(const RunFacts& facts);

  /// Adds to facts.json how many batches were left out and how often the run went back (--on-nan).
  void set_incidents(int64_t skipped, int64_t rollbacks);

  /// How often the run went back, with all radii halved each time; 0 where facts.json does not say.
  int64_t rollbacks() const;

  /// Whether a process writes to the run at `path`; also where the file system has no locks and nobody knows.
  static bool is_held(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoint"; }
  std::filesystem::path smoothness() const { return path_ / "smoothness.csv"; }

  /// The text of config.toml.
  std::string config() const;

  /// Appends one row and flushes; the first row of a new log writes the header.
  void append(const LogRow& row);

  /// The rows of log.csv, without unknown columns and without an incomplete last line, which a killed run leaves.
  /// Throws InputError when the log cannot be read; a run without a log has no rows.
  std::vector<LogRow> log() const;

  /// Removes config.toml, status.json, facts.json, smoothness.csv and, as far as they are empty then, the folders: for a run that
  /// failed in its first step.
  void discard();

  /// Drops the rows after `step`, which a killed run wrote after its last checkpoint. Returns the seconds of the last
  /// row that remains.
  double rewind(int64_t step);

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  void lock();

  std::filesystem::path path_;
  std::shared_ptr<const int> lock_;  // held while this process may write
};

/// Creates the first of the folders runs/<stem>-1, runs/<stem>-2, ... that does not exist. In their names the stem's
/// parentheses, which shells do not take as they are, become a dash: nanogpt-tiny-muon-none-1.
std::filesystem::path make_run_path(const std::string& stem);

}  // namespace gluon::lab
