// Ctrl-C and SIGTERM end a run after the step in progress, and so does the end of whoever reads its output. Steps can
// be long: a second Ctrl-C or SIGTERM ends the program.

#pragma once

#include <atomic>
#include <csignal>
#include <ctime>

namespace gluon::cli {

/// From the first call on, true once a signal has come.
inline const std::atomic<bool>& stop_on_signal() {
  static std::atomic<bool> stop{false};
  static std::atomic<std::time_t> since{0};
  const auto request = [](int signal) {
    // A terminal's Ctrl-C reaches ranks twice, by itself and through the process that started them.
    constexpr std::time_t kOnce = 2;
    const std::time_t now = std::time(nullptr);
    if (!stop.exchange(true)) since = now;
    if (signal == SIGPIPE || now - since < kOnce) return;
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, request);
  return stop;
}

}  // namespace gluon::cli
