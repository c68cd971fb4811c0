// Meeting: ranks find each other through a store that rank 0 holds at MASTER_ADDR:MASTER_PORT, or beside torchrun's.

#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gluon/distributed/ranks.h"

namespace gluon {

struct Meeting {
  c10::intrusive_ptr<c10d::TCPStore> store;
  c10::intrusive_ptr<c10d::TCPStore>
      watch_store;      // a connection of its own: the other may be waiting for an answer
  std::string address;  // where other ranks reach this one
};

/// Returns when all ranks are there. Throws RankLost naming those that did not come within the timeout, and
/// InputError when the port is taken, MASTER_ADDR is no host, two processes have the same rank, or ranks differ in
/// their number.
Meeting meet(const Ranks& ranks);

/// The address of this machine, in digits, from which it reaches `host`. Throws InputError when there is none.
std::string address_towards(const std::string& host, uint16_t port);

/// A text as a store has it, and back.
inline std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
inline std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// "rank 2", "ranks 1, 2 and 5".
std::string listed(const std::vector<int>& ranks);

/// What an error of c10d or Gloo says, without the place in its source and without its backtrace.
std::string first_line(const std::exception& error);

/// Starts a thread that talks to other ranks. Writing to one that is gone is an error to it, and to the threads that
/// c10d starts in it; by default such a write ends the process (SIGPIPE), and Gloo's do not ask for anything else.
std::thread talking_thread(std::function<void()> body);

/// Runs `body` in such a thread; false when that takes longer than `limit`. The thread then goes on by itself: `body`
/// must own what it uses. This is for calls that may hang when another process does.
bool finishes_within(std::chrono::milliseconds limit, std::function<void()> body);

}  // namespace gluon
