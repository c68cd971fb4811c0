#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <vector>

#include "gluon/kernels/cuda_check.h"
#include "lab/train/cuda_graph.h"

namespace gluon::lab {
namespace {

// A stream on which nobody else works as long as this lives: LibTorch hands out the streams of its pool again and
// again, and what others put on a stream during a capture becomes part of the graph. Streams are kept for later graphs
// and never destroyed: the allocator keeps a graph's memory by its stream, and may wait for the stream when it frees
// the memory, after the graph.
class OwnStream {
 public:
  explicit OwnStream(c10::DeviceIndex device) : device_(device) {
    const std::lock_guard lock(unused().mutex);
    std::vector<cudaStream_t>& streams = unused().streams[device];
    if (streams.empty()) {
      kernels::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    } else {
      stream_ = streams.back();
      streams.pop_back();
    }
  }
  ~OwnStream() {
    const std::lock_guard lock(unused().mutex);
    unused().streams[device_].push_back(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  c10::cuda::CUDAStream get() const { return c10::cuda::getStreamFromExternal(stream_, device_); }

 private:
  struct Unused {
    std::mutex mutex;
    std::map<c10::DeviceIndex, std::vector<cudaStream_t>> streams;
  };
  static Unused& unused() {
    static Unused all;
    return all;
  }

  c10::DeviceIndex device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

struct CudaGraph::Captured {
  explicit Captured(c10::DeviceIndex device) : stream(device) {}

  OwnStream stream;
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph(const c10::Device& device, const std::function<void()>& work) {
  const c10::cuda::CUDAGuard on_device(device);
  captured_ = std::make_unique<Captured>(on_device.current_device().index());
  // A graph has its own memory: free what earlier runs left in the allocator, or it would be held twice.
  c10::cuda::CUDACachingAllocator::emptyCache();
  // The default stream cannot be captured.
  at::cuda::CUDAEvent before;
  before.record();
  {
    const c10::cuda::CUDAStreamGuard guard(captured_->stream.get());
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
