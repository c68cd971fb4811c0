#include "lab/train/progress.h"

#include <cmath>
#include <cstdio>

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

std::string time_text(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  char text[32];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  char val[32] = "";
  if (state.val) std::snprintf(val, sizeof val, "  val %.4f", *state.val);
  char share[32] = "";
  if (state.optimizer_share) {
    std::snprintf(share, sizeof share, "  optimizer %.0f %%", 100 * *state.optimizer_share);
  }
  char line[160];
  std::snprintf(line, sizeof line, "step %lld/%lld  loss %.4f%s  %s tok/s%s  %s left",
                static_cast<long long>(state.step), static_cast<long long>(state.steps), state.loss, val,
                rate_text(state.tokens_per_second).c_str(), share, time_text(state.seconds_left).c_str());
  return line;
}

void Progress::show(const ProgressState& state) {
  if (live_) {
    out_ << "\r\033[K" << progress_line(state) << std::flush;
    open_ = true;
  } else if (state.evaluated) {
    out_ << progress_line(state) << std::endl;
  }
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

}  // namespace gluon::lab
