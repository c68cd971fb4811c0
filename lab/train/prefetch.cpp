#include "lab/train/prefetch.h"

#include <utility>

namespace gluon::lab {
namespace {

Batch made(const Dataset& dataset, int64_t index, int64_t size, const RankShare& share, bool pinned) {
  const Batch batch = share.of(dataset.train_batch(index, size));
  if (!pinned) return batch;
  return {batch.inputs.pin_memory(), batch.targets.pin_memory()};
}

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device)
    : Prefetcher(std::move(dataset), batch, device, device.is_cuda()) {}

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device,
                       bool ahead, const RankShare& share)
    : dataset_(std::move(dataset)), batch_(batch), device_(device), ahead_(ahead), share_(share) {}

Batch Prefetcher::get(int64_t index) {
  const bool pinned = device_.is_cuda();
  const bool prepared = next_.valid() && next_index_ == index;
  const Batch host = prepared ? next_.get() : made(*dataset_, index, batch_, share_, pinned);
  // The pinned memory is dropped on return, perhaps before the copy is done. That is safe: a copy with
  // non_blocking leaves an event with the caching host allocator, which gives the memory out again only after it.
  Batch batch{host.inputs.to(device_, /*non_blocking=*/true),
              host.targets.to(device_, /*non_blocking=*/true)};
  // After a repeated index the next batch is there already.
  if (ahead_ && !(next_.valid() && next_index_ == index + 1)) {
    next_ = {};  // waits for a batch that nobody asked for
    next_index_ = index + 1;
    next_ =
        std::async(std::launch::async, [dataset = dataset_, next = index + 1, size = batch_, share = share_,
                                        pinned] { return made(*dataset, next, size, share, pinned); });
  }
  return batch;
}

}  // namespace gluon::lab
