// RunStatus: whether a run trains, has ended, and how.
//
//   status.json  {"state": "failed", "step": 1, "steps": 30, "started": "2026-01-31T12:00:00Z", "error": "..."}
//
// The process that trains writes the file when it begins and when it ends. A killed one leaves "running" behind, so a
// reader also asks whether a process holds the run (RunDirectory::is_held()), and takes the step from the log.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/train/run_directory.h"

namespace gluon::lab {

enum class RunState { kRunning, kFinished, kInterrupted, kFailed, kKilled, kUnknown };

/// "running", "finished", "interrupted", "failed", "killed" or "unknown".
std::string_view run_state_name(RunState state);

struct RunStatus {
  RunState state = RunState::kUnknown;   // unknown: the source has no status, as the authors' logs and old runs
  int64_t step = 0;                      // steps taken
  std::optional<int64_t> steps{};        // of the whole run, if known
  std::string error{};                   // why it failed, one sentence
  std::optional<double> seconds_left{};  // of a running one, at the pace of its last steps
};

/// Writes status.json, whole or not at all; `started` is the time of utc_time(). Throws InputError when it cannot.
void write_run_status(const std::filesystem::path& run, const RunStatus& status, const std::string& started);

/// The status of the run in a folder with these rows of its log; `config_steps` of its config serve a run without the
/// file, which is finished if its log says so and unknown otherwise. A damaged file counts as none, and `note` gets a
/// sentence that says so.
RunStatus read_run_status(const std::filesystem::path& run, std::span<const LogRow> log,
                          std::optional<int64_t> config_steps, std::string& note);

/// "running, step 56 of 200, 1:20 left", "failed after step 1 of 30: ..."; empty when unknown.
std::string status_text(const RunStatus& status);

/// "0:42", "1:02:03".
std::string time_text(double seconds);

/// The time now, as "2026-01-31T12:00:00Z".
std::string utc_time();

}  // namespace gluon::lab
