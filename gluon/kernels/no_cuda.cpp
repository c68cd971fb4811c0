#include "gluon/check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::kernels {
namespace {

[[noreturn]] void refuse() {
  throw InputError("kernels: this build has no CUDA kernels; it needs nvcc and a LibTorch with CUDA");
}

}  // namespace

bool available(const at::Tensor&) { return false; }
const at::Tensor& PointerTable::of(std::span<const at::Tensor>) { refuse(); }
const at::Tensor& MomentumWeights::of(double, const at::Tensor&) { refuse(); }
void accumulate_momentum(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor polar(const at::Tensor&, const QuinticPlan&, double) { refuse(); }
void update_parameters(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) { refuse(); }
void update_by_sign(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                    const at::Tensor&, double, double) {
  refuse();
}
at::Tensor rms_norm(const at::Tensor&) { refuse(); }
std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor squared_relu(const at::Tensor&) { refuse(); }
void squared_relu_backward_(const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor qk_rotary_(const at::Tensor&, const Rotary&) { refuse(); }
at::Tensor qk_rotary_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, const Rotary&) {
  refuse();
}
at::Tensor cross_entropy_(const at::Tensor&, const at::Tensor&, std::optional<double>) { refuse(); }

}  // namespace gluon::kernels
