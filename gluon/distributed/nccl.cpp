#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "gluon/core/check.h"
#include "gluon/distributed/process_group.h"

namespace gluon {
namespace {

using Nccl = c10d::ProcessGroupNCCL;

// Makes the GPU of this rank the current one.
at::Device take_gpu(const Ranks& ranks) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  const int count = cuda.deviceCount();
  GLUON_CHECK(ranks.local_rank < count, "nccl: LOCAL_RANK ", ranks.local_rank, " has no GPU: this machine shows ",
              count);
  const at::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(ranks.local_rank));
  cuda.setDevice(device);
  return device;
}

}  // namespace

CollectivePtr make_nccl(const Ranks& ranks, const Rendezvous& rendezvous) {
  const at::Device device = take_gpu(ranks);
  const auto connect = [ranks](const StorePtr& store) -> c10::intrusive_ptr<C10dGroup> {
    auto options = Nccl::Options::create();
    // An exchange with a lost rank hangs on the GPU until c10d aborts the process, without naming the rank. A monitor
    // that knows the rank may end the process before.
    options->timeout = ranks.timeout + std::chrono::minutes(1);
    return c10::make_intrusive<Nccl>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), ranks.rank, ranks.size,
                                     options);
  };
  const auto close = []([[maybe_unused]] C10dGroup& group) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
    static_cast<Nccl&>(group).shutdown();  // or it warns
#endif
  };
  return std::make_shared<ProcessGroup>(
      ranks, GroupOptions{.name = "nccl", .device = device, .connect = connect, .close = close}, rendezvous);
}

}  // namespace gluon
