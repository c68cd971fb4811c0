#include "lab/train/prefetch.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace gluon::lab {
namespace {

// "cuda" means the current GPU of the thread, which differs between threads.
torch::Device with_index(torch::Device device) {
  return device.is_cuda() && !device.has_index() ? c10::impl::VirtualGuardImpl(device.type()).getDevice() : device;
}

Batch made(const Dataset& dataset, int64_t index, int64_t size, const RankShare& share, torch::Device device) {
  const Batch batch = share.of(dataset.train_batch(index, size));
  if (!device.is_cuda()) return batch;
  const c10::DeviceGuard guard(device);
  return {batch.inputs.pin_memory(), batch.targets.pin_memory()};
}

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device, bool ahead,
                       const RankShare& share)
    : dataset_(std::move(dataset)), batch_(batch), device_(with_index(device)), ahead_(ahead), share_(share) {}

Batch Prefetcher::get(int64_t index) {
  const bool prepared = next_.valid() && next_index_ == index;
  const Batch host = prepared ? next_.get() : made(*dataset_, index, batch_, share_, device_);
  // The pinned memory is released on return, perhaps before the copy is done. That is safe: a copy with
  // non_blocking records an event with the caching host allocator, which reuses the memory only after it.
  Batch batch{host.inputs.to(device_, /*non_blocking=*/true), host.targets.to(device_, /*non_blocking=*/true)};
  // After a repeated index the next batch is already in preparation.
  if (ahead_ && !(next_.valid() && next_index_ == index + 1)) {
    next_ = {};  // waits for a batch that is not needed
    next_index_ = index + 1;
    next_ = std::async(std::launch::async, [dataset = dataset_, next = index + 1, size = batch_, share = share_,
                                            device = device_] { return made(*dataset, next, size, share, device); });
  }
  return batch;
}

}  // namespace gluon::lab
