// Graph: work on a GPU captured once and launched again as a whole, without the host's part in it.

#pragma once

#include <functional>
#include <memory>

namespace gluon::kernels {

class Graph {
 public:
  /// Captures what `work` puts on the current stream, without running it. Work captured must not wait for the device,
  /// and has run before; its tensors keep their memory as long as the graph lives. Throws InputError without CUDA.
  explicit Graph(const std::function<void()>& work);
  ~Graph();

  /// Launches it on the current stream.
  void replay();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace gluon::kernels
