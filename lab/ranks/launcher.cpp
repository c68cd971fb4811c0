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

std::atomic<int> received{0};

// The processes of one run; 0 for a rank that has ended.
class Children {
 public:
  explicit Children(std::vector<pid_t> processes) : processes_(std::move(processes)) {}

  bool any() const {
    return std::any_of(processes_.begin(), processes_.end(), [](pid_t process) { return process > 0; });
  }
  void send(int signal) const {
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

  /// Collects the ranks that have ended. Sets `code` to the exit code of the first that failed for a reason of its own;
  /// kRankLostCode is replaced by a later failure.
  void collect(int& code) {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] == 0) continue;
      const pid_t ended = ::waitpid(processes_[rank], &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      if (ended < 0) status = 1 << 8;  // its status is lost: count it as a failure
      processes_[rank] = 0;
      if (WIFSIGNALED(status) && killing_) continue;  // killed here
      if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        std::cerr << "gluon: rank " << rank << " was ended by signal " << signal << " (" << ::strsignal(signal)
                  << ")\n";
      }
      const int own = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0 || (code == kRankLostCode && own != 0)) code = own;
    }
  }

 private:
  std::vector<pid_t> processes_;
  bool killing_ = false;
};

}  // namespace

int launch_ranks(int count, std::chrono::milliseconds grace) {
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how the ranks end
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int number) { received = number; });
  }
  const std::string port = std::to_string(free_port()), secret = to_hex(random_bytes(32));
  std::vector<pid_t> processes;
  for (int rank = 0; rank < count; ++rank) processes.push_back(start_rank(rank, count, port, secret));
  Children children(std::move(processes));
  int code = 0;
  Clock::time_point all_well = Clock::now();
  while (children.any()) {
    if (const int signal = received.exchange(0); signal != 0) children.send(signal);
    children.collect(code);
    if (code == 0) all_well = Clock::now();
    // A rank that is stopped or blocked elsewhere does not notice that the others have ended.
    if (Clock::now() - all_well > grace) children.kill_all();
    std::this_thread::sleep_for(kPoll);
  }
  return code;
}

bool was_launched() { return std::getenv(kLauncher) != nullptr; }

void end_with_launcher() {
  const char* launcher = std::getenv(kLauncher);
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(::getppid()) != launcher) ::raise(SIGTERM);  // the launcher has died already
}

}  // namespace gluon::lab
