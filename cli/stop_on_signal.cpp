#include "cli/stop_on_signal.h"

#include <csignal>
#include <cstdint>
#include <ctime>

#include "gluon/distributed/collective.h"
#include "lab/ranks/launcher.h"

namespace gluon::cli {
namespace {

std::atomic<bool> stop{false};
std::atomic<int> received{0};  // the first signal
std::atomic<int64_t> since{0};
std::atomic<int64_t> once{0};  // milliseconds in which further signals are copies of the first
std::atomic<bool> launched{false};

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1000 * now.tv_sec + now.tv_nsec / 1'000'000;
}

void request(int signal, siginfo_t* info, void* /*context*/) {
  // What the terminal sends also reaches the process that started the ranks, which passes it on.
  if (launched && info->si_code == SI_KERNEL) return;
  const int64_t now = milliseconds();
  // One exchange: a copy that another thread handles meanwhile must find the time.
  if (int64_t none = 0; since.compare_exchange_strong(none, now)) received = signal;
  stop = true;
  if (signal == SIGPIPE || now - since < once) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

const std::atomic<bool>& stop_on_signal() {
  launched = lab::was_launched();
  // timeout(1) signals its child and then its process group. torchrun and mpirun may pass on, after a while, what the
  // terminal has sent already; people press Ctrl-C twice in less.
  once = Ranks::from_environment().given && !launched ? 2000 : 100;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action.sa_sigaction = request;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  return stop;
}

int stopped_code() {
  const int signal = received;
  if (signal == SIGPIPE) return 0;
  return 128 + (signal == 0 ? SIGTERM : signal);
}

}  // namespace gluon::cli
