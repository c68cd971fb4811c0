#include "lab/ranks/launcher.h"

#include <ATen/Parallel.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/hmac.h"
#include "lab/ranks/free_port.h"
#include "lab/ranks/stop_requests.h"

extern char** environ;

namespace gluon::lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr const char* kLauncher = "GLUON_LAUNCHER";  // set to its process id in the ranks

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

pid_t start_rank(int rank, int count, const std::string& port, const std::string& secret) {
  const std::string number = std::to_string(rank), size = std::to_string(count);
  const std::pair<const char*, std::string> settings[] = {{"RANK", number},
                                                          {"LOCAL_RANK", number},
                                                          {"WORLD_SIZE", size},
                                                          {"LOCAL_WORLD_SIZE", size},
                                                          {"MASTER_PORT", port},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"GLUON_SECRET", secret},
                                                          {kLauncher, std::to_string(::getpid())},
                                                          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  for (const auto& [name, value] : settings) ::setenv(name, value.c_str(), /*overwrite=*/1);
  ::setenv("OMP_NUM_THREADS", std::to_string(std::max(1, at::get_num_threads() / count)).c_str(), /*overwrite=*/0);
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ);
  GLUON_CHECK(error == 0, "ranks: cannot start rank ", rank, ": ", std::strerror(error));
  return child;
}

StopRequests requests;
std::atomic<int> received{0};  // to be passed on
std::atomic<int> again{0};     // the second request

void receive(int signal, siginfo_t* info, void* /*context*/) {
  const StopRequests::Kind kind = requests.take(signal, *info);
  if (kind == StopRequests::Kind::kFirst) received = signal;
  if (kind == StopRequests::Kind::kAgain) again = signal;
}

// The processes of one run; 0 for a rank that has ended.
class Children {
 public:
  explicit Children(std::vector<pid_t> processes) : processes_(std::move(processes)) {}

  bool any() const {
    return std::any_of(processes_.begin(), processes_.end(), [](pid_t process) { return process > 0; });
  }
  void send(int signal) {
    sent_ = signal;
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, signal);
    }
  }
  void kill_all() {
    if (killing_) return;
    killing_ = true;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (processes_[rank] > 0) std::cerr << "gluon: rank " << rank << " does not stop and is killed\n";
    }
    send(SIGKILL);
  }

  /// Collects the ranks that have ended.
  void collect() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] == 0) continue;
      const pid_t ended = ::waitpid(processes_[rank], &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      if (ended < 0) status = 1 << 8;  // its status is lost: count it as a failure
      processes_[rank] = 0;
      if (WIFSIGNALED(status) && killing_) continue;  // killed here
      if (WIFSIGNALED(status) && WTERMSIG(status) != sent_) {
        const int signal = WTERMSIG(status);
        std::cerr << "gluon: rank " << rank << " was ended by signal " << signal << " (" << ::strsignal(signal)
                  << ")\n";
      }
      if (weight(status) <= worst_) continue;
      worst_ = weight(status);
      code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }

  /// The exit code of the first rank that failed for a reason of its own; else of one that lost another; else of one
  /// that was stopped; else 0.
  int code() const { return code_; }
  bool failed() const { return worst_ > kStopped; }

 private:
  enum Weight { kFine, kStopped, kLostAnother, kFailed };

  static Weight weight(int status) {
    if (WIFSIGNALED(status)) return kFailed;
    switch (WEXITSTATUS(status)) {
      case 0: return kFine;
      case 128 + SIGHUP:
      case 128 + SIGINT:
      case 128 + SIGTERM: return kStopped;  // and has saved
      case kRankLostCode: return kLostAnother;
      default: return kFailed;
    }
  }

  std::vector<pid_t> processes_;
  bool killing_ = false;
  int sent_ = 0;  // the signal that was passed on last
  Weight worst_ = kFine;
  int code_ = 0;
};

}  // namespace

int launch_ranks(int count, std::chrono::milliseconds grace) {
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how the ranks end
  handle_signals({SIGINT, SIGTERM, SIGHUP}, receive);
  const std::string port = std::to_string(free_port()), secret = to_hex(random_bytes(32));
  std::vector<pid_t> processes;
  for (int rank = 0; rank < count; ++rank) processes.push_back(start_rank(rank, count, port, secret));
  Children children(std::move(processes));
  Clock::time_point all_well = Clock::now();
  while (children.any()) {
    if (const int signal = received.exchange(0); signal != 0) children.send(signal);
    if (again != 0) children.kill_all();
    children.collect();
    if (!children.failed()) all_well = Clock::now();
    // A rank that is stopped or blocked elsewhere does not notice that the others have ended.
    if (Clock::now() - all_well > grace) children.kill_all();
    std::this_thread::sleep_for(kPoll);
  }
  return again != 0 ? 128 + again : children.code();
}

bool was_launched() { return std::getenv(kLauncher) != nullptr; }

void end_with_launcher() {
  const char* launcher = std::getenv(kLauncher);
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(::getppid()) != launcher) ::raise(SIGTERM);  // the launcher has died already
}

}  // namespace gluon::lab
