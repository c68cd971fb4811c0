// CudaGraph: GPU work that is captured once and then launched as a whole, without the host's cost of each operation.

#pragma once

#include <functional>
#include <memory>

namespace gluon::lab {

class CudaGraph {
 public:
  /// Captures what `work` launches on the current stream, without running it. The work must not wait for the device and
  /// must have run once before; its tensors keep their memory as long as the graph lives. Throws InputError without
  /// CUDA.
  explicit CudaGraph(const std::function<void()>& work);
  ~CudaGraph();

  /// Launches the captured work on the current stream.
  void replay();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace gluon::lab
