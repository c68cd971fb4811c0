// The c10d store through which ranks find each other. Rank 0 serves it at MASTER_ADDR:MASTER_PORT, unless the launcher
// does.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "gluon/distributed/rendezvous.h"

namespace gluon {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// What a Rendezvous returns.
struct Meeting {
  StorePtr store;  // rank 0's may be the server, which the monitors of all ranks need to the end
  std::shared_ptr<RankMonitor> monitor = nullptr;
};

/// The Rendezvous of make_collective(backend, ranks): opens the store and returns when all ranks have joined there.
/// Throws RankLost naming those that did not within the timeout, and InputError when two processes have the same rank
/// or ranks differ in WORLD_SIZE. All ranks that have joined throw the same.
Meeting meet_at_store(const Ranks& ranks);

/// Connects to the store; with `serve` rank 0 serves it unless the launcher does: on the loopback when MASTER_ADDR is
/// one, else for other machines, and then only with a secret. Throws InputError when the host is unknown, the port is in
/// use or the secret is missing or another, and RankLost when nobody answers within the timeout.
StorePtr open_store(const Ranks& ranks, bool serve = true);

/// The numeric address of this machine from which it reaches `host`. Throws InputError when there is none.
std::string address_towards(const std::string& host, uint16_t port);

/// "127.0.0.1:29500 within 600 s", for messages.
std::string place_and_time(const Ranks& ranks);

/// "rank 2", "ranks 1, 2 and 5".
std::string list_ranks(const std::vector<int>& ranks);

/// The first line of an error of c10d or Gloo, without the place in its source.
std::string first_line(const std::exception& error);

/// Conversions between text and a store's values.
inline std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
inline std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace gluon
