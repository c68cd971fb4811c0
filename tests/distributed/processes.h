// Runs the body of a test in several processes that meet over loopback.

#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <vector>

#include "gluon/distributed/collective.h"
#include "lab/ranks/free_port.h"

namespace gluon {

/// Calls body(ranks) in `size` new processes. Returns their exit codes: 0, or 1 after an exception or a failed
/// expectation, or 128 + the signal. Threads do not survive a fork: the caller must not have used ATen's threads
/// before.
inline std::vector<int> run_ranks(int size, const std::function<void(const Ranks&)>& body,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const uint16_t port = lab::free_port();
  std::vector<pid_t> children;
  std::fflush(stdout);  // or every child prints what is buffered
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

/// Expects that body(ranks) succeeds in `size` new processes.
inline void expect_ranks(int size, const std::function<void(const Ranks&)>& body) {
  EXPECT_EQ(run_ranks(size, body), std::vector<int>(static_cast<std::size_t>(size), 0));
}

inline void expect_rank_lost(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    ADD_FAILURE() << "expected RankLost: " << text;
  } catch (const RankLost& lost) {
    EXPECT_NE(std::string(lost.what()).find(text), std::string::npos) << lost.what();
  }
}

}  // namespace gluon
