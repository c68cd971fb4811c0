// Mirror: values of the host in device memory, sent again only when they change.

#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::kernels {

/// For what a CUDA graph must not hold: it would send again what lies at the values' place by then.
inline void refuse_capture(const at::Device& device) {
  GLUON_CHECK(!is_captured(device), "kernels: a step goes into a CUDA graph only after one like it, with ",
              "gradients at the same addresses and the same radii and betas");
}

/// The memory stays where it is as long as the number of values does, so that a graph may read it. Where one of the
/// caller's does, other values go elsewhere: the graph keeps those of its capture.
template <typename T>
class Mirror {
 public:
  /// `like` says the device and the values' type. Returns whether the memory is another one now.
  bool send(std::vector<T> values, const at::TensorOptions& like) {
    if (values == host_) {
      in_graph_ = in_graph_ || is_captured(like.device());
      return false;
    }
    refuse_capture(like.device());
    if (std::exchange(in_graph_, false)) graphs_.push_back(std::exchange(device_, {}));
    host_.clear();  // what is on the device counts again when all of it has been sent
    const auto size = static_cast<int64_t>(values.size());
    const bool other = !device_.defined() || device_.size(0) != size;
    if (other) device_ = at::empty({size}, like);
    // Pinned memory of the caching allocator is not handed out again before the copy has been made.
    const at::Tensor pinned =
        at::empty({size}, at::TensorOptions().dtype(device_.dtype()).pinned_memory(true));
    std::memcpy(pinned.data_ptr(), values.data(), values.size() * sizeof(T));
    device_.copy_(pinned, /*non_blocking=*/true);
    host_ = std::move(values);
    return other;
  }

  T* data() const { return static_cast<T*>(device_.data_ptr()); }

 private:
  std::vector<T> host_;
  at::Tensor device_;
  bool in_graph_ = false;           // of the caller's
  std::vector<at::Tensor> graphs_;  // what such graphs read
};

/// Addresses of tensors.
class PointerTable {
 public:
  template <typename Pointer>
  Pointer* of(std::span<const at::Tensor> tensors) {
    std::vector<int64_t> now;
    now.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) now.push_back(reinterpret_cast<int64_t>(tensor.data_ptr()));
    mirror_.send(std::move(now), tensors[0].options().dtype(at::kLong));
    return reinterpret_cast<Pointer*>(mirror_.data());
  }

 private:
  Mirror<int64_t> mirror_;
};

}  // namespace gluon::kernels
