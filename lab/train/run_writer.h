// RunWriter: what a run records while it trains.
//
//   log.csv, smoothness.csv, checkpoint/ and the event file in the run directory; the progress line on a terminal
//
// The loop (trainer.h) decides when; the first rank alone has a writer.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory_csv.h"
#include "lab/train/event_file.h"
#include "lab/train/progress.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {

/// What the progress line says beside a row of the log.
struct Pace {
  int64_t steps = 0;  // of the whole run
  double tokens_per_second = 0;
  double seconds_left = 0;
};

class RunWriter {
 public:
  /// Opens smoothness.csv for the samples of `recorder` (null: none) and drops those after `steps_taken`; an event file
  /// that the run has is continued. Both references outlive this. Throws InputError, with nothing changed, when the
  /// samples in the directory were measured in another way.
  RunWriter(RunDirectory& directory, Progress& progress, const Recorder* recorder, int64_t steps_taken);

  /// Also writes the log as an event file for TensorBoard (event_file.h).
  void add_event_file();

  /// Drops the rows of the log after `step`; returns the seconds of training up to there.
  double rewind(int64_t step) { return directory_.rewind(step); }

  void append(const LogRow& row, const Pace& pace);
  void append(const Trajectory& samples);
  void save(Checkpoint checkpoint);  // with the text of config.toml

  /// Ends the progress line.
  void finish() { progress_.finish(); }

 private:
  RunDirectory& directory_;
  Progress& progress_;
  std::optional<TrajectoryCsvWriter> samples_;
  std::filesystem::path event_path_;  // empty: no event file
  std::optional<EventLog> events_;    // from the first row on
  std::optional<double> val_;         // of the last evaluation
};

}  // namespace gluon::lab
