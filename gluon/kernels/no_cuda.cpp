#include "gluon/core/check.h"
#include "gluon/kernels/fused_step.h"
#include "gluon/kernels/kernels.h"

namespace gluon::kernels {
namespace {

[[noreturn]] void refuse() {
  throw InputError("kernels: this build has no CUDA kernels; it needs nvcc and a LibTorch with CUDA");
}

}  // namespace

bool available(const at::Tensor&) { return false; }
std::string why_unavailable(const at::Device&) { return "this build has no CUDA kernels"; }
StepPath step_path(const at::Device&) { return StepPath::kPlain; }
std::string why_not_hopper(const at::Device& device) { return why_unavailable(device); }
bool is_captured(const at::Device&) { return false; }
std::optional<double> device_seconds(const std::function<void()>&) { return std::nullopt; }
int64_t peak_bytes(const at::Device&) { return 0; }
struct FusedStep::Device {};
FusedStep::FusedStep(std::vector<FusedStack>, int64_t) { refuse(); }
FusedStep::~FusedStep() = default;
void FusedStep::run(std::span<const Inputs>) { refuse(); }
std::optional<FusedStep::Place> FusedStep::verdict() const { refuse(); }
void FusedStep::momentum_changed() { refuse(); }
at::Tensor polar_lmo(const at::Tensor&, const LmoForm&) { refuse(); }
at::Tensor portable_polar_lmo(const at::Tensor&, const LmoForm&) { refuse(); }

}  // namespace gluon::kernels
