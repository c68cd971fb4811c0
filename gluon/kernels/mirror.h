// Mirror: values of the host in device memory, sent again only when they change.

#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <utility>
#include <vector>

namespace gluon::kernels {

/// The memory stays where it is as long as the number of values does, so that a CUDA graph may read it.
template <typename T> class Mirror {
 public:
  /// `like` gives the device and the values' dtype. Returns whether the memory has moved.
  bool send(std::vector<T> values, const at::TensorOptions& like) {
    if (values == host_) return false;
    host_.clear();  // should a line below throw, everything is sent again
    const auto size = static_cast<int64_t>(values.size());
    const bool moved = !device_.defined() || device_.size(0) != size;
    if (moved) device_ = at::empty({size}, like);
    // The caching allocator does not hand out pinned memory again before its copy has been made.
    const at::Tensor pinned = at::empty({size}, at::TensorOptions().dtype(device_.dtype()).pinned_memory(true));
    std::memcpy(pinned.data_ptr(), values.data(), values.size() * sizeof(T));
    device_.copy_(pinned, /*non_blocking=*/true);
    host_ = std::move(values);
    return moved;
  }

  T* data() const { return static_cast<T*>(device_.data_ptr()); }

 private:
  std::vector<T> host_;
  at::Tensor device_;
};

}  // namespace gluon::kernels
