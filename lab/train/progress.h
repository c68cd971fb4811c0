// Progress of a run for people: one live line on a terminal, plain lines elsewhere.

#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

namespace gluon::lab {

struct ProgressState {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;
  std::optional<double> val;  // of the last evaluation
  double tokens_per_second = 0;
  std::optional<double> optimizer_share;  // of the step's time; not measured on a GPU
  double seconds_left = 0;
  bool evaluated = false;  // in this step
};

class Progress {
 public:
  /// `live` rewrites one line; otherwise a line appears at every evaluation.
  Progress(std::ostream& out, bool live) : out_(out), live_(live) {}

  void show(const ProgressState& state);

  /// Ends the live line, so that later output starts on a new one.
  void finish();

 private:
  std::ostream& out_;
  bool live_;
  bool open_ = false;
};

/// "step 120/400  loss 2.1034  val 2.2210  51.2k tok/s  optimizer 12 %  0:42 left"
std::string progress_line(const ProgressState& state);

}  // namespace gluon::lab
