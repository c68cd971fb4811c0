// RunWriter: what a run records while it trains.
//
//   log.csv, smoothness.csv, status.json, checkpoint/ and the event file in the run directory; the progress line on a terminal
//
// The loop (trainer.h) decides when; the first rank alone has a writer.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/train/event_file.h"
#include "lab/train/run_directory.h"
#include "lab/train/run_status.h"

namespace gluon::lab {

/// What the progress line says beside a row of the log.
struct Pace {
  int64_t steps = 0;  // of the whole run
  double tokens_per_second = 0;
  double seconds_left = 0;
};

/// Progress of a run for people: one live line on a terminal, plain lines elsewhere.
class Progress {
 public:
  /// `live` rewrites one line; otherwise a line appears at every evaluation.
  Progress(std::ostream& out, bool live) : out_(out), live_(live) {}

  /// "step 120/400  loss 2.1034  val 2.2210  51.2k tok/s  optimizer 12 %  0:42 left", with the last validation loss.
  void show(const LogRow& row, const Pace& pace);

  /// Prints a sentence on a line of its own.
  void say(const std::string& sentence);

  /// Ends the live line, so that later output starts on a new one; the next row begins another run.
  void finish();

 private:
  std::ostream& out_;
  bool live_;
  bool open_ = false;
  std::optional<double> val_;  // of the last evaluation
};

class RunWriter {
 public:
  /// Opens smoothness.csv for the samples of `recorder` (null: none) and drops those after `steps_taken`; an event file
  /// that the run has is continued. Both references outlive this. Throws InputError, with nothing changed, when the
  /// samples in the directory were measured in another way.
  RunWriter(RunDirectory& directory, Progress& progress, const Recorder* recorder, int64_t steps_taken);

  /// Also writes the log as an event file for TensorBoard (event_file.h).
  void add_event_file();

  /// Writes status.json: the run trains from `step` on; it has ended after `step`; it has failed there. What fail()
  /// cannot write is lost, as the error itself is what matters.
  void begin(int64_t step, int64_t steps);
  void end(RunState state, int64_t step, int64_t steps);
  void fail(const std::string& error, int64_t step, int64_t steps) noexcept;

  /// Drops the rows of the log and the samples after `step`; returns the seconds of training up to there.
  double rewind(int64_t step);

  void set_incidents(int64_t skipped, int64_t rollbacks) { directory_.set_incidents(skipped, rollbacks); }

  /// Records that gradients held NaN or Inf: what was done, and the counts so far (RunDirectory::set_incidents()).
  void append_incident(const std::string& sentence, int64_t skipped, int64_t rollbacks);

  void append(const LogRow& row, const Pace& pace);
  void append(const Trajectory& samples);
  void save(Checkpoint checkpoint);  // with the text of config.toml

  /// Tries what save() of a checkpoint with this text will do, so that it fails before the first step and not after many (try_checkpoint()).
  void try_save(std::map<std::string, std::string> text) const;

  /// Ends the progress line.
  void finish() { progress_.finish(); }

 private:
  RunDirectory& directory_;
  Progress& progress_;
  const Recorder* recorder_;
  std::optional<TrajectoryCsvWriter> samples_;
  std::string started_;               // the time of begin()
  std::filesystem::path event_path_;  // empty: no event file
  std::optional<EventLog> events_;    // from the first row on
};

}  // namespace gluon::lab
