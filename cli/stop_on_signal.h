// SIGINT (Ctrl-C), SIGTERM and SIGPIPE end a run after the current step. Steps can be long: a second SIGINT or SIGTERM
// ends the program at once.

#pragma once

#include <atomic>
#include <csignal>
#include <ctime>

namespace gluon::cli {

/// Installs the handlers; the result turns true when a signal arrives.
inline const std::atomic<bool>& stop_on_signal() {
  static std::atomic<bool> stop{false};
  static std::atomic<std::time_t> since{0};
  const auto request = [](int signal) {
    // Ctrl-C reaches a rank twice: from the terminal and from the process that started the ranks.
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
