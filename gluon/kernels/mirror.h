// Mirror: values of the host in device memory.

#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

namespace gluon::kernels {

// Values of the host in device memory that never moves, so that a graph may read them; sent again when they change.
template <typename T>
class Mirror {
 public:
  Mirror(int64_t size, const at::TensorOptions& options) : device_(at::zeros({size}, options)) {}

  void send(std::vector<T> values) {
    if (values == host_) return;
    host_ = std::move(values);
    // Pinned memory of the caching allocator is not handed out again before the copy has been made.
    const at::Tensor pinned =
        at::empty({device_.size(0)}, at::TensorOptions().dtype(device_.dtype()).pinned_memory(true));
    std::memcpy(pinned.data_ptr(), host_.data(), host_.size() * sizeof(T));
    device_.copy_(pinned, /*non_blocking=*/true);
  }

  T* data() const { return static_cast<T*>(device_.data_ptr()); }

 private:
  std::vector<T> host_;
  at::Tensor device_;
};

}  // namespace gluon::kernels
