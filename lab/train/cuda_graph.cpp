#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "lab/train/cuda_graph.h"

namespace gluon::lab {

struct CudaGraph::Captured {
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph(const std::function<void()>& work) : captured_(std::make_unique<Captured>()) {
  // A graph has its own memory: free what earlier runs left in the allocator, or it would be held twice.
  c10::cuda::CUDACachingAllocator::emptyCache();
  // The default stream cannot be captured.
  at::cuda::CUDAEvent before;
  before.record();
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    before.block(c10::cuda::getCurrentCUDAStream());
    // Thread-local: another thread may pin the next batch meanwhile.
    captured_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        captured_->graph.capture_end();  // releases the stream and the allocator
      } catch (const std::exception&) {  // the error of the work says more
      }
      throw;
    }
    captured_->graph.capture_end();
  }
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::replay() { captured_->graph.replay(); }

}  // namespace gluon::lab
