// StopRequests: tells a second request to stop from copies of the first.
//
// One request often arrives several times: timeout(1) signals its child and then its process group, torchrun and mpirun
// pass on what the terminal has sent to every process, and a terminal that closes sends SIGHUP twice. Ctrl-C pressed at
// the terminal arrives once a press, and only the kernel can send it. In the flow: signal handlers of the program and of
// the process that starts ranks.

#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <initializer_list>

namespace gluon::lab {

class StopRequests {
 public:
  enum class Kind { kFirst, kCopy, kAgain };

  /// Signals other than Ctrl-C that arrive within this time after the first are copies. A busy machine may run the
  /// handler of a copy late.
  static constexpr std::chrono::milliseconds kCopies{2000};

  /// What this signal is. For handlers: safe in any of them, on several threads at once.
  Kind take(int signal, const siginfo_t& info);

  /// The first signal, 0 before it.
  int first() const { return first_; }

 private:
  std::atomic<int> first_{0};
  std::atomic<int64_t> since_{0};  // milliseconds
};

/// Calls `handler` on these signals; on SIGHUP not under nohup, where it stays ignored.
void handle_signals(std::initializer_list<int> signals, void (*handler)(int, siginfo_t*, void*));

}  // namespace gluon::lab
