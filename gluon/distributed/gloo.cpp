#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "gluon/distributed/backends.h"
#include "gluon/distributed/process_group.h"

namespace gluon {
namespace {

// The address over which the others are reached; on one machine the loopback.
std::shared_ptr<::gloo::transport::Device> make_device(const Ranks& ranks) {
  const std::string& master = ranks.master_address;
  const bool local = master == "localhost" || master.starts_with("127.");
  return local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
               : c10d::ProcessGroupGloo::createDefaultDevice();
}

}  // namespace

CollectivePtr make_gloo(const Ranks& ranks) {
  const auto store = meet(ranks);
  auto options = c10d::ProcessGroupGloo::Options::create(ranks.timeout);
  options->devices.push_back(make_device(ranks));
  options->threads = 2;
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  try {
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, ranks.rank, ranks.size, options);
    return std::make_shared<ProcessGroup>("gloo", ranks, store, std::move(group));
  } catch (const std::exception& error) {
    throw RankLost(std::string("rank ") + std::to_string(ranks.rank) +
                   ": the ranks met but could not connect to each other (" + error.what() + ")");
  }
}

}  // namespace gluon
