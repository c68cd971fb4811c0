#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include "lab/train/number_copy.h"

namespace gluon::lab {

struct NumberCopy::Arrival {
  at::cuda::CUDAEvent event;
};

NumberCopy::NumberCopy(const torch::Tensor& number) {
  if (!number.is_cuda()) {
    host_ = number.clone();
    return;
  }
  const c10::cuda::CUDAGuard guard(number.device());
  host_ = torch::empty({}, number.options().device(torch::kCPU).pinned_memory(true));
  host_.copy_(number, /*non_blocking=*/true);
  arrival_ = std::make_shared<Arrival>();
  arrival_->event.record();
}

double NumberCopy::value() const {
  if (arrival_) arrival_->event.synchronize();
  return host_.item<double>();
}

}  // namespace gluon::lab
