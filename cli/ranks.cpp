#include "cli/ranks.h"

#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gluon/check.h"

extern char** environ;

namespace gluon::cli {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// A port of the loopback that is free now.
uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(socket, plain, size) == 0 && ::getsockname(socket, plain, &size) == 0;
  const int error = errno;
  ::close(socket);
  GLUON_CHECK(bound, "--ranks: no free port on the loopback: ", std::strerror(error));
  return ntohs(address.sin_port);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

int launch_ranks(int count, int threads_each) {
  std::vector<std::string> arguments = own_arguments();
  arguments.insert(arguments.end(), {"--threads", std::to_string(threads_each)});
  const std::string port = std::to_string(free_port());
  std::signal(SIGINT, SIG_IGN);  // the terminal tells the ranks, too; they end after their step
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    std::vector<std::string> environment{"RANK=" + std::to_string(rank), "LOCAL_RANK=" + std::to_string(rank),
                                         "WORLD_SIZE=" + std::to_string(count), "MASTER_ADDR=127.0.0.1",
                                         "MASTER_PORT=" + port};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    pid_t child = 0;
    const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers(arguments).data(),
                                    pointers(environment).data());
    GLUON_CHECK(error == 0, "--ranks: cannot start rank ", rank, ": ", std::strerror(error));
    children.push_back(child);
  }
  int code = 0;
  for (const pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const int this_one = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0) code = this_one;
  }
  return code;
}

}  // namespace gluon::cli
