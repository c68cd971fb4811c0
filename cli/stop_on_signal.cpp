#include "cli/stop_on_signal.h"

#include <csignal>

#include "lab/ranks/launcher.h"
#include "lab/ranks/stop_requests.h"

namespace gluon::cli {
namespace {

std::atomic<bool> stop{false};
std::atomic<bool> launched{false};
lab::StopRequests requests;

void request(int signal, siginfo_t* info, void* /*context*/) {
  const bool again = requests.take(signal, *info) == lab::StopRequests::Kind::kAgain;
  stop = true;
  // The process that started the ranks gets a second request, too, and ends them.
  if (!again || signal == SIGPIPE || launched) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

const std::atomic<bool>& stop_on_signal() {
  launched = lab::was_launched();
  lab::handle_signals({SIGINT, SIGTERM, SIGHUP, SIGPIPE}, request);
  return stop;
}

int stopped_code() {
  const int signal = requests.first();
  if (signal == SIGPIPE) return 0;
  return 128 + (signal == 0 ? SIGTERM : signal);
}

}  // namespace gluon::cli
