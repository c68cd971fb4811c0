#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "gluon/kernels/graph.h"

namespace gluon::kernels {

struct Graph::Captured {
  at::cuda::CUDAGraph graph;
};

Graph::Graph(const std::function<void()>& work) : captured_(std::make_unique<Captured>()) {
  // A graph has memory of its own; what the runs before it have left in the allocator would be held twice.
  c10::cuda::CUDACachingAllocator::emptyCache();
  // The default stream cannot be captured.
  at::cuda::CUDAEvent before;
  before.record();
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    before.block(c10::cuda::getCurrentCUDAStream());
    // Other threads go on with what they do: the next batch is being pinned.
    captured_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        captured_->graph.capture_end();  // the stream and the allocator are anyone's again
      } catch (const std::exception&) {  // the work's own error says more
      }
      throw;
    }
    captured_->graph.capture_end();
  }
}

Graph::~Graph() = default;

void Graph::replay() { captured_->graph.replay(); }

}  // namespace gluon::kernels
