#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "gluon/core/check.h"
#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda/update.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::kernels {
namespace {

cudaStream_t stream() { return at::cuda::getCurrentCUDAStream(); }

cuda::ElementType type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return cuda::ElementType::kFloat32;
    case at::kHalf:
      return cuda::ElementType::kFloat16;
    case at::kBFloat16:
      return cuda::ElementType::kBFloat16;
    default:
      throw InputError(join("kernels: expected float32, float16 or bfloat16, got ", tensor.scalar_type()));
  }
}

int64_t entries(const at::Tensor& stack) { return stack.size(1) * stack.size(2); }

}  // namespace

std::string why_unavailable(const at::Device& device) {
  if (!device.is_cuda()) return "the layers are not on a GPU";
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  if (properties->major == 9 && properties->minor == 0) return {};
  return join(properties->name, " has compute capability ", properties->major, ".", properties->minor,
              ", the kernels need 9.0 (H100, H200)");
}

bool is_captured(const at::Device& device) {
  return device.is_cuda() && is_capturing(at::cuda::getCurrentCUDAStream(device.index()));
}

std::optional<double> device_seconds(const std::function<void()>& work) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  begin.record();
  work();
  end.record();
  end.synchronize();
  return 1e-3 * static_cast<double>(begin.elapsed_time(end));
}

int64_t peak_bytes(const at::Device& device) {
  if (!device.is_cuda()) return 0;
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  // The first entry sums up those of small and large blocks.
  return c10::cuda::CUDACachingAllocator::getDeviceStats(index).allocated_bytes[0].peak;
}

bool available(const at::Tensor& tensor) { return why_unavailable(tensor.device()).empty(); }

void accumulate_momentum(const at::Tensor& momentum, const float* const* gradients, const float* weights) {
  const c10::cuda::CUDAGuard guard(momentum.device());
  const cuda::MomentumStep step{.count = momentum.size(0),
                                .size = entries(momentum),
                                .gradients = gradients,
                                .momentum = momentum.data_ptr<float>(),
                                .weights = weights};
  check(cuda::accumulate_momentum(&step, 1, stream()), "accumulate_momentum");
}

at::Tensor polar(const at::Tensor& batch, const QuinticPlan& plan, double factor) {
  if (batch.size(0) > cuda::kMaxMatrices) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : batch.split(cuda::kMaxMatrices)) {
      parts.push_back(polar(part, plan, factor));
    }
    return at::cat(parts);
  }
  const c10::cuda::CUDAGuard guard(batch.device());
  const at::Tensor input = batch.contiguous();
  const auto count = static_cast<int>(batch.size(0));
  const auto rows = static_cast<int>(batch.size(1));
  const auto columns = static_cast<int>(batch.size(2));
  // Rows of half precision stacks start at multiples of 8 entries.
  const int64_t row_stride = (batch.size(2) + 7) / 8 * 8;
  const at::Tensor output =
      at::empty({batch.size(0), batch.size(1), row_stride}, batch.options().dtype(at::kHalf));
  // The last product is linear in its coefficients: the factor costs nothing there.
  std::vector<Quintic> coefficients = plan.coefficients;
  Quintic& last = coefficients.back();
  last = {last.a * factor, last.b * factor, last.c * factor};
  const cuda::OrthogonalizeStack stack{
      .count = count,
      .rows = rows,
      .columns = columns,
      .input = input.data_ptr<float>(),
      .input_type = cuda::ElementType::kFloat32,
      .row_stride = batch.size(2),
      .matrix_stride = batch.size(1) * batch.size(2),
      .output = {static_cast<__half*>(output.data_ptr()), row_stride, batch.size(1) * row_stride}};
  const cuda::OrthogonalizeOptions options{.coefficients = coefficients.data(),
                                           .steps = static_cast<int>(coefficients.size()),
                                           .safety = plan.safety};
  const auto bytes = cuda::orthogonalize_workspace(&stack, 1, options);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, batch.options().dtype(at::kByte));
  check(cuda::orthogonalize(&stack, 1, options, workspace.data_ptr(), bytes, stream()), "orthogonalize");
  return row_stride == batch.size(2) ? output : output.narrow(2, 0, batch.size(2)).contiguous();
}

void update_parameters(float* const* parameters, const at::Tensor& directions, const at::Tensor& radii,
                       double decay) {
  const c10::cuda::CUDAGuard guard(directions.device());
  // A norm of the user's own may give them in another type or order.
  const bool half = directions.scalar_type() == at::kHalf;
  const at::Tensor rows = (half ? directions : directions.to(at::kFloat)).contiguous();
  const cuda::ParameterUpdate update{.count = rows.size(0),
                                     .size = entries(rows),
                                     .parameters = parameters,
                                     .directions = rows.data_ptr(),
                                     .direction_type = type_of(rows),
                                     .radii = radii.data_ptr<float>(),
                                     .direction_factor = 1,
                                     .decay = static_cast<float>(decay)};
  check(cuda::update_parameters(update, stream()), "update_parameters");
}

}  // namespace gluon::kernels
