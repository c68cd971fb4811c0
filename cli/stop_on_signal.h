// Ctrl-C and SIGTERM end a run after the step in progress.

#pragma once

#include <atomic>
#include <csignal>

namespace gluon::cli {

/// From the first call on, true once either signal has come.
inline const std::atomic<bool>& stop_on_signal() {
  static std::atomic<bool> stop{false};
  const auto request = [](int) { stop = true; };
  std::signal(SIGINT, request);
  std::signal(SIGTERM, request);
  return stop;
}

}  // namespace gluon::cli
