// CudaGraph: GPU work that is captured once and then launched as a whole, without the host's cost of each operation.

#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace gluon::lab {

class CudaGraph {
 public:
  /// Captures what `work` launches on the current stream of the GPU `device`, without running it; meanwhile that is a
  /// stream of the graph's own. The work must not wait for the device and must have run once before; its tensors keep
  /// their memory as long as the graph lives. Throws InputError without CUDA.
  CudaGraph(const c10::Device& device, const std::function<void()>& work);
  ~CudaGraph();

  /// Launches the captured work on the current stream of the device.
  void replay();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace gluon::lab
