#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <sstream>

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

}  // namespace

CollectivePtr make_gloo(const Ranks& ranks, const Rendezvous& rendezvous) {
  const auto connect = [ranks](const StorePtr& store) -> c10::intrusive_ptr<C10dGroup> {
    auto options = Gloo::Options::create(ranks.timeout);
    add_devices(*options, *store, ranks);
    options->threads = 2;
    auto group = c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), ranks.rank,
                                           ranks.size, options);
    group->barrier()->wait();  // rank 0 may leave early, and with it the store by which the others connect
    return group;
  };
  return std::make_shared<ProcessGroup>(ranks, GroupOptions{.name = "gloo", .device = at::kCPU, .connect = connect},
                                        rendezvous);
}

}  // namespace gluon
