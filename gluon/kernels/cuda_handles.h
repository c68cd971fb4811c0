// Owners of what CUDA hands out, and values of the host in device memory.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gluon/kernels/cuda_check.h"

namespace gluon::kernels {

struct DestroyHandle {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  // Work before it may still use what its owner destroys next.
  void operator()(cudaEvent_t event) const {
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
};

template <typename Handle> using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyHandle>;

/// A stream of our own: capturing one of LibTorch's pool would take it from whoever else was given it.
inline Owned<cudaStream_t> make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Owned<cudaStream_t>(stream);
}

inline Owned<cudaEvent_t> make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return Owned<cudaEvent_t>(event);
}

/// What `enqueue(stream)` puts on the stream, as a graph.
template <typename Enqueue> Owned<cudaGraphExec_t> capture_graph(cudaStream_t stream, Enqueue enqueue) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  const auto end = [&] {
    cudaGraph_t captured = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream, &captured);
    return std::pair(error, Owned<cudaGraph_t>(captured));
  };
  try {
    enqueue(stream);
  } catch (...) {
    end();
    throw;
  }
  const auto [error, captured] = end();
  check(error, "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  check(cudaGraphInstantiate(&graph, captured.get(), 0), "cudaGraphInstantiate");
  return Owned<cudaGraphExec_t>(graph);
}

/// Values of the host in device memory, sent again only when they change. The memory stays where it is as long as the
/// number of values does, so that a CUDA graph may read it.
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
