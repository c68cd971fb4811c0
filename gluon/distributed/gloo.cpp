#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "gluon/core/check.h"
#include "gluon/distributed/process_group.h"

namespace gluon {
namespace {

using Gloo = c10d::ProcessGroupGloo;

bool is_loopback(const std::string& address) { return address == "::1" || address.starts_with("127."); }

// The address at which the other ranks reach this one. Gloo would take what the host's name resolves to, which may be a
// loopback; the route to rank 0 has a real address. On rank 0's machine that route may still be a loopback (Debian's
// 127.0.1.1): it then takes the address from which it reaches a rank that has a better one.
std::string reachable_address(c10d::Store& store, const Ranks& ranks) {
  const auto key = [](int rank) { return join("address/", rank); };
  const std::string own = address_towards(ranks.master_address, ranks.master_port);
  store.set(key(ranks.rank), to_bytes(own));
  if (!is_loopback(own)) return own;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const std::string other = to_text(store.get(key(rank)));
    if (!is_loopback(other)) return address_towards(other, ranks.master_port);
  }
  return own;
}

void add_devices(Gloo::Options& options, c10d::Store& store, const Ranks& ranks) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces == nullptr || *interfaces == '\0') {
    options.devices.push_back(Gloo::createDeviceForHostname(reachable_address(store, ranks)));
    return;
  }
  std::istringstream names(interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    options.devices.push_back(Gloo::createDeviceForInterface(name));
  }
}

// One attempt of this rank to connect to all others; shared with its thread, which may outlive the attempt.
struct Attempt {
  std::atomic<bool> ended = false;
  std::string error;
  c10::intrusive_ptr<Gloo> group;
};

void connect_once(Attempt& attempt, const StorePtr& store, const Ranks& ranks) {
  try {
    auto options = Gloo::Options::create(ranks.timeout);
    add_devices(*options, *store, ranks);
    options->threads = 2;
    attempt.group = c10::make_intrusive<Gloo>(store, ranks.rank, ranks.size, options);
    attempt.group->barrier()->wait();  // rank 0 may leave early, and with it the store by which the others connect
  } catch (const std::exception& error) {
    attempt.error = error.what();
    if (attempt.error.empty()) attempt.error = "connecting failed";
  }
  attempt.ended = true;
}

// Waits for the outcome of every rank, each an error or empty. Returns the first error, soon after it is known.
std::string outcome_of_all(const StorePtr& store, const Ranks& ranks, const Attempt& attempt) {
  constexpr std::chrono::milliseconds kPoll{10}, kFarewell{10000};
  const auto key = [](int rank) { return join("outcome/", rank); };
  std::string error;
  bool reported = false;
  std::chrono::steady_clock::time_point failed;
  for (int known = 0; known < ranks.size;) {
    if (!reported && (attempt.ended || !error.empty())) {
      store->set(key(ranks.rank), to_bytes(attempt.ended ? attempt.error : error));
      reported = true;
    }
    known = 0;
    for (int rank = 0; rank < ranks.size; ++rank) {
      if (!store->check({key(rank)})) continue;
      ++known;
      const std::string theirs = to_text(store->get(key(rank)));
      if (error.empty() && !theirs.empty()) failed = std::chrono::steady_clock::now();
      if (error.empty()) error = theirs;
    }
    const bool late = !error.empty() && std::chrono::steady_clock::now() - failed > kFarewell;
    if (late) throw std::runtime_error(error);  // a rank is gone: no other attempt would succeed
    std::this_thread::sleep_for(kPoll);
  }
  return error;
}

// Gloo takes whoever connects first to a port it opened for a rank, and that rank is then refused. So no attempt
// succeeds with a stranger in it, and one that failed is repeated.
c10::intrusive_ptr<C10dGroup> connect_all(const StorePtr& store, const Ranks& ranks) {
  constexpr int kAttempts = 5;
  std::string error;
  for (int number = 0; number < kAttempts; ++number) {
    const auto own = c10::make_intrusive<c10d::PrefixStore>(join("gloo/", number), store);
    const auto attempt = std::make_shared<Attempt>();
    std::thread([=] { connect_once(*attempt, own, ranks); }).detach();
    error = outcome_of_all(own, ranks, *attempt);
    if (error.empty()) return std::move(attempt->group);
  }
  throw std::runtime_error(error);
}

}  // namespace

CollectivePtr make_gloo(const Ranks& ranks, const Rendezvous& rendezvous) {
  const auto connect = [ranks](const StorePtr& store) { return connect_all(store, ranks); };
  return std::make_shared<ProcessGroup>(ranks, GroupOptions{.name = "gloo", .device = at::kCPU, .connect = connect},
                                        rendezvous);
}

}  // namespace gluon
