#include "lab/ranks/stop_requests.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace gluon::lab {
namespace {

using Kind = StopRequests::Kind;

siginfo_t from(int code) {
  siginfo_t info{};
  info.si_code = code;
  return info;
}

const siginfo_t kTerminal = from(SI_KERNEL), kProgram = from(SI_USER);

TEST(StopRequests, WhatProgramsPassOnAtOnceIsACopy) {
  StopRequests requests;
  EXPECT_EQ(requests.first(), 0);
  EXPECT_EQ(requests.take(SIGTERM, kProgram), Kind::kFirst);
  EXPECT_EQ(requests.take(SIGTERM, kProgram), Kind::kCopy);
  EXPECT_EQ(requests.take(SIGINT, kProgram), Kind::kCopy);
  EXPECT_EQ(requests.first(), SIGTERM);
}

TEST(StopRequests, EachCtrlCIsARequest) {
  StopRequests requests;
  EXPECT_EQ(requests.take(SIGINT, kTerminal), Kind::kFirst);
  EXPECT_EQ(requests.take(SIGINT, kProgram), Kind::kCopy);
  EXPECT_EQ(requests.take(SIGINT, kTerminal), Kind::kAgain);
  EXPECT_EQ(requests.first(), SIGINT);
}

TEST(StopRequests, ATerminalThatClosesSendsItsSignalTwice) {
  StopRequests requests;
  EXPECT_EQ(requests.take(SIGHUP, kTerminal), Kind::kFirst);
  EXPECT_EQ(requests.take(SIGHUP, kTerminal), Kind::kCopy);
}

TEST(StopRequests, LaterSignalsAreNoCopies) {
  StopRequests requests;
  EXPECT_EQ(requests.take(SIGTERM, kProgram), Kind::kFirst);
  std::this_thread::sleep_for(StopRequests::kCopies + std::chrono::milliseconds(10));
  EXPECT_EQ(requests.take(SIGHUP, kProgram), Kind::kAgain);
  EXPECT_EQ(requests.first(), SIGTERM);
}

}  // namespace
}  // namespace gluon::lab
