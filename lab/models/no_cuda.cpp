#include "gluon/core/check.h"
#include "lab/models/kernels.h"

namespace gluon::lab::fused {
namespace {

[[noreturn]] void refuse() {
  throw InputError("models: this build has no CUDA kernels; it needs nvcc and a LibTorch with CUDA");
}

}  // namespace

RmsNorm rms_norm(const at::Tensor&) { refuse(); }
at::Tensor rms_norm_backward(const RmsNorm&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor mlp_up(const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor mlp_down_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor embedding_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor qk_rotary_(const at::Tensor&, const Rotary&) { refuse(); }
at::Tensor qk_rotary_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, const Rotary&) {
  refuse();
}
at::Tensor cross_entropy_(const at::Tensor&, const at::Tensor&, std::optional<double>) { refuse(); }
void multiply_(const at::Tensor&, const at::Tensor&, bool, const at::Tensor&, bool, bool) { refuse(); }
void side_by_side(const at::Device&, const std::function<void()>&, const std::function<void()>&) { refuse(); }

}  // namespace gluon::lab::fused
