#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <utility>

#include "gluon/kernels/cuda_check.h"
#include "lab/models/kernels.h"

namespace gluon::lab::fused {
namespace {

// The stream beside another one. Each has its own, since who captures a stream captures the one beside it, too. They
// are never destroyed: the allocator keeps memory by its stream.
c10::cuda::CUDAStream stream_beside(const c10::cuda::CUDAStream& stream) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, cudaStream_t>, cudaStream_t> all;
  const std::lock_guard lock(mutex);
  cudaStream_t& beside = all[{stream.device_index(), stream.stream()}];
  if (beside == nullptr) {
    kernels::check(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  return c10::cuda::getStreamFromExternal(beside, stream.device_index());
}

}  // namespace

// The allocator hands out freed memory again to the stream it was taken on, at once. That is safe in both directions:
// the stream beside begins after all that came to the current one before, and ends before what comes next.
void side_by_side(const at::Device& device, const std::function<void()>& first, const std::function<void()>& second) {
  const c10::cuda::CUDAGuard on_device(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(), beside = stream_beside(stream);
  at::cuda::CUDAEvent begin, end;
  begin.record(stream);
  begin.block(beside);
  first();
  {
    const c10::cuda::CUDAStreamGuard guard(beside);
    second();
  }
  end.record(beside);
  end.block(stream);
}

}  // namespace gluon::lab::fused
