#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <sstream>

#include "gluon/distributed/backends.h"
#include "gluon/distributed/process_group.h"

namespace gluon {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// Gloo's own choice is what the host's name resolves to, which may be a loopback; the way to the first rank is a real
// one.
void add_devices(Gloo::Options& options, const std::string& address) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces == nullptr || *interfaces == '\0') {
    options.devices.push_back(Gloo::createDeviceForHostname(address));
    return;
  }
  std::istringstream names(interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    options.devices.push_back(Gloo::createDeviceForInterface(name));
  }
}

}  // namespace

CollectivePtr make_gloo(const Ranks& ranks) {
  const auto connect = [ranks](const Meeting& meeting) -> c10::intrusive_ptr<C10dGroup> {
    auto options = Gloo::Options::create(ranks.timeout);
    add_devices(*options, meeting.address);
    options->threads = 2;
    const auto store = c10::make_intrusive<c10d::PrefixStore>("gloo", meeting.store);
    return c10::make_intrusive<Gloo>(store, ranks.rank, ranks.size, options);
  };
  return std::make_shared<ProcessGroup>(ranks,
                                        GroupOptions{.name = "gloo", .device = at::kCPU, .connect = connect});
}

}  // namespace gluon
