#include "gluon/core/check.h"
#include "lab/train/cuda_graph.h"

namespace gluon::lab {

struct CudaGraph::Captured {};
CudaGraph::CudaGraph(const c10::Device&, const std::function<void()>&) {
  throw InputError("CudaGraph: this build has no CUDA; it needs nvcc and a LibTorch with CUDA");
}
CudaGraph::~CudaGraph() = default;
void CudaGraph::replay() {}  // there is none to replay

}  // namespace gluon::lab
