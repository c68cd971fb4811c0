// Runs a test's body in several processes that meet over loopback.

#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <vector>

#include "gluon/distributed/collective.h"

namespace gluon {

/// A port of the loopback that was free a moment ago.
inline uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

/// Calls body(ranks) in `size` new processes; returns their exit codes: 0, or 1 after an exception or a failed
/// expectation, or 128 + the signal. Threads do not survive a fork: the caller must not have used ATen's before.
inline std::vector<int> run_ranks(int size, const std::function<void(const Ranks&)>& body,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const uint16_t port = free_port();
  std::vector<pid_t> children;
  std::fflush(stdout);  // or every child would print what is waiting there
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      Ranks ranks{.rank = rank, .size = size, .local_rank = rank, .master_port = port, .timeout = timeout};
      int code = 1;
      try {
        body(ranks);
        code = ::testing::Test::HasFailure() ? 1 : 0;
      } catch (const std::exception& error) {
        std::cerr << "rank " << rank << ": " << error.what() << '\n';
      }
      std::cerr.flush();
      ::_exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

}  // namespace gluon
