#include "lab/train/run_status.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/json.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kStates = {"running", "finished", "interrupted",
                                                     "failed",  "killed",   "unknown"};  // in the order of RunState
constexpr std::size_t kRecorded = 4;  // the states that the file may have
constexpr std::size_t kLongestError = 2000;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr std::size_t kPaceRows = 100;  // rows that say how fast the run is now; evaluations are among them

int64_t count_of(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  GLUON_CHECK(found != json.end() && found->is_number_integer(), "status.json: expected a whole number ", name);
  const bool fits = !found->is_number_unsigned() || found->get<uint64_t>() <= static_cast<uint64_t>(kMostSteps);
  const int64_t count = fits ? found->get<int64_t>() : -1;
  GLUON_CHECK(count >= 0 && count <= kMostSteps, "status.json: ", name, " must be in 0..", kMostSteps);
  return count;
}

RunStatus parse_status(const fs::path& path) {
  const nlohmann::json json = parse_json(read_text(path, "status"), "status.json");
  GLUON_CHECK(json.is_object() && json.contains("state") && json["state"].is_string(),
              "status.json: expected an object with a state");
  const auto known = std::find(kStates.begin(), kStates.begin() + kRecorded, json["state"].get<std::string>());
  GLUON_CHECK(known != kStates.begin() + kRecorded, "status.json: unknown state");
  RunStatus status{.state = static_cast<RunState>(known - kStates.begin()),
                   .step = count_of(json, "step"),
                   .steps = count_of(json, "steps")};
  if (status.state != RunState::kFailed) return status;
  if (json.contains("error") && json["error"].is_string()) status.error = json["error"].get<std::string>();
  status.error.resize(std::min(status.error.size(), kLongestError));
  return status;
}

std::optional<double> seconds_left(std::span<const LogRow> log, int64_t steps) {
  if (log.empty()) return std::nullopt;
  const LogRow& last = log.back();
  const LogRow first = log.size() > kPaceRows ? log[log.size() - 1 - kPaceRows] : LogRow{};
  const double pace = (last.seconds - first.seconds) / static_cast<double>(last.step - first.step);
  const double left = pace * static_cast<double>(std::max<int64_t>(steps - last.step, 0));
  return std::isfinite(left) && left >= 0 ? std::optional(left) : std::nullopt;
}

}  // namespace

std::string_view run_state_name(RunState state) { return kStates[static_cast<std::size_t>(state)]; }

void write_run_status(const fs::path& run, const RunStatus& status, const std::string& started) {
  const nlohmann::ordered_json json = {{"state", run_state_name(status.state)},
                                       {"step", status.step},
                                       {"steps", status.steps.value_or(0)},
                                       {"started", started},
                                       {"error", status.error.substr(0, kLongestError)}};
  write_text_atomically(run / "status.json", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

RunStatus read_run_status(const fs::path& run, std::span<const LogRow> log, std::optional<int64_t> config_steps,
                          std::string& note) {
  // Asked before the file is read: a run that ends in between has replaced it by then.
  const bool held = RunDirectory::is_held(run);
  const int64_t logged = log.empty() ? 0 : log.back().step;
  RunStatus status;
  try {
    if (fs::exists(run / "status.json")) status = parse_status(run / "status.json");
  } catch (const std::exception&) {
    note = "status.json is damaged: whether the run has ended is told by its log alone.";
  }
  if (status.state == RunState::kUnknown) {
    status.step = logged;
    status.steps = config_steps;
    if (!log.empty() && config_steps && logged >= *config_steps) status.state = RunState::kFinished;
  }
  if (status.state != RunState::kRunning) return status;
  status.step = logged;
  if (held) {
    status.seconds_left = seconds_left(log, *status.steps);
  } else {
    status.state = RunState::kKilled;
  }
  return status;
}

std::string status_text(const RunStatus& status) {
  if (status.state == RunState::kUnknown) return "";
  const std::string of = status.steps ? join(" of ", *status.steps) : "";
  if (status.state == RunState::kRunning) {
    return join("running, step ", status.step, of,
                status.seconds_left ? join(", ", time_text(*status.seconds_left), " left") : "");
  }
  const char* const when = status.state == RunState::kFinished ? ", step " : " after step ";
  return join(run_state_name(status.state), when, status.step, of, status.error.empty() ? "" : ": ", status.error);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  char text[64];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  }
  return text;
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace gluon::lab
