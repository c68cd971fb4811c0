#include "lab/train/run_writer.h"

#include <cstdio>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

std::string rate_text(double rate) {
  char text[32];
  if (rate >= 1e6) {
    std::snprintf(text, sizeof text, "%.2fM", rate / 1e6);
  } else if (rate >= 1e3) {
    std::snprintf(text, sizeof text, "%.1fk", rate / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.0f", rate);
  }
  return text;
}

std::string progress_line(const LogRow& row, std::optional<double> last_val, const Pace& pace) {
  char val[32] = "";
  if (last_val) std::snprintf(val, sizeof val, "  val %.4f", *last_val);
  char share[32] = "";
  if (row.optimizer) std::snprintf(share, sizeof share, "  optimizer %.0f %%", 100 * *row.optimizer);
  char line[160];
  std::snprintf(line, sizeof line, "step %lld/%lld  loss %.4f%s  %s tok/s%s  %s left", static_cast<long long>(row.step),
                static_cast<long long>(pace.steps), row.loss, val, rate_text(pace.tokens_per_second).c_str(), share,
                time_text(pace.seconds_left).c_str());
  return line;
}

}  // namespace

void Progress::show(const LogRow& row, const Pace& pace) {
  if (row.val) val_ = row.val;
  const std::string line = progress_line(row, val_, pace);
  if (live_) {
    out_ << "\r\033[K" << line << std::flush;
    open_ = true;
  } else if (row.val) {
    out_ << line << std::endl;
  }
}

void Progress::say(const std::string& sentence) {
  if (open_) out_ << std::endl;
  open_ = false;
  out_ << sentence << std::endl;
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
  val_.reset();
}

RunWriter::RunWriter(RunDirectory& directory, Progress& progress, const Recorder* recorder, int64_t steps_taken)
    : directory_(directory), progress_(progress), recorder_(recorder) {
  if (recorder != nullptr) samples_.emplace(directory.smoothness(), recorder->measured(), steps_taken);
  if (std::filesystem::exists(directory.path() / kEventFile)) add_event_file();
}

void RunWriter::begin(int64_t step, int64_t steps) {
  started_ = utc_time();
  write_run_status(directory_.path(), {.state = RunState::kRunning, .step = step, .steps = steps}, started_);
}

void RunWriter::end(RunState state, int64_t step, int64_t steps) {
  write_run_status(directory_.path(), {.state = state, .step = step, .steps = steps}, started_);
}

void RunWriter::fail(const std::string& error, int64_t step, int64_t steps) noexcept {
  try {
    const RunStatus status{.state = RunState::kFailed, .step = step, .steps = steps, .error = error};
    write_run_status(directory_.path(), status, started_);
  } catch (const std::exception&) {  // a full disk, perhaps the reason of the failure: the run then counts as killed
  }
}

double RunWriter::rewind(int64_t step) {
  if (samples_) {
    samples_.reset();
    samples_.emplace(directory_.smoothness(), recorder_->measured(), step);
  }
  events_.reset();  // the next row writes it anew
  return directory_.rewind(step);
}

void RunWriter::append_incident(const std::string& sentence, int64_t skipped, int64_t rollbacks) {
  progress_.say(sentence);
  directory_.set_incidents(skipped, rollbacks);
}

void RunWriter::add_event_file() { event_path_ = directory_.path() / kEventFile; }

void RunWriter::append(const LogRow& row, const Pace& pace) {
  directory_.append(row);
  if (events_) {
    events_->append(row);
  } else if (!event_path_.empty()) {
    events_.emplace(event_path_, directory_.log());  // which has been rewound to the checkpoint
  }
  progress_.show(row, pace);
}

void RunWriter::append(const Trajectory& samples) {
  for (const LayerTrajectory& layer : samples.layers) {
    for (const Sample& sample : layer.samples) samples_->append(layer, sample);
  }
  samples_->flush();
}

void RunWriter::save(Checkpoint checkpoint) {
  checkpoint.text["config"] = directory_.config();
  save_checkpoint(directory_.checkpoints(), checkpoint);
}

void RunWriter::try_save(std::map<std::string, std::string> text) const {
  Checkpoint checkpoint;
  checkpoint.text = std::move(text);
  checkpoint.text["config"] = directory_.config();
  try_checkpoint(directory_.checkpoints(), checkpoint);
}

}  // namespace gluon::lab
