#include "lab/ranks/stop_requests.h"

#include <ctime>

namespace gluon::lab {

StopRequests::Kind StopRequests::take(int signal, const siginfo_t& info) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = 1000 * time.tv_sec + time.tv_nsec / 1'000'000;
  // One exchange: a copy that another thread handles meanwhile must find the time.
  if (int64_t none = 0; since_.compare_exchange_strong(none, now)) {
    first_ = signal;
    return Kind::kFirst;
  }
  const bool key = signal == SIGINT && info.si_code == SI_KERNEL;
  return key || now - since_ >= kCopies.count() ? Kind::kAgain : Kind::kCopy;
}

void handle_signals(std::initializer_list<int> signals, void (*handler)(int, siginfo_t*, void*)) {
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace gluon::lab
