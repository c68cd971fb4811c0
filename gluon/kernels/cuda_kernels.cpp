#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "gluon/core/check.h"
#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::kernels {

std::string why_unavailable(const at::Device& device) {
  if (!device.is_cuda()) return "the layers are not on a GPU";
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  if (properties->major == 9 && properties->minor == 0) return {};
  return join(properties->name, " has compute capability ", properties->major, ".", properties->minor,
              ", the kernels need 9.0 (H100, H200)");
}

bool is_captured(const at::Device& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (device.is_cuda()) {
    check(cudaStreamIsCapturing(at::cuda::getCurrentCUDAStream(device.index()), &status), "cudaStreamIsCapturing");
  }
  return status != cudaStreamCaptureStatusNone;
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

at::Tensor polar_lmo(const at::Tensor& batch, const LmoForm& form) {
  if (batch.size(0) > cuda::kMaxMatrices) {
    std::vector<at::Tensor> parts = batch.split(cuda::kMaxMatrices);
    for (at::Tensor& part : parts) part = polar_lmo(part, form);
    return at::cat(parts);
  }
  const c10::cuda::CUDAGuard guard(batch.device());
  const at::Tensor input = batch.contiguous();
  // Rows of half precision stacks start at multiples of 8 entries.
  const int64_t row_stride = (batch.size(2) + 7) / 8 * 8;
  const at::Tensor output = at::empty({batch.size(0), batch.size(1), row_stride}, batch.options().dtype(at::kHalf));
  // The last product is linear in its coefficients: the factor costs nothing there.
  std::vector<Quintic> coefficients = form.coefficients;
  Quintic& last = coefficients.back();
  last = {-last.a * form.factor, -last.b * form.factor, -last.c * form.factor};
  const cuda::OrthogonalizeStack stack{
      .count = static_cast<int>(batch.size(0)),
      .rows = static_cast<int>(batch.size(1)),
      .columns = static_cast<int>(batch.size(2)),
      .input = input.data_ptr<float>(),
      .input_type = cuda::ElementType::kFloat32,
      .row_stride = batch.size(2),
      .matrix_stride = batch.size(1) * batch.size(2),
      .output = {static_cast<__half*>(output.data_ptr()), row_stride, batch.size(1) * row_stride}};
  const cuda::OrthogonalizeOptions options{.coefficients = coefficients, .safety = form.safety};
  const auto bytes = cuda::orthogonalize_workspace({&stack, 1}, options);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, batch.options().dtype(at::kByte));
  check(cuda::orthogonalize({&stack, 1}, options, workspace.data_ptr(), bytes, at::cuda::getCurrentCUDAStream()),
        "orthogonalize");
  return row_stride == batch.size(2) ? output : output.narrow(2, 0, batch.size(2)).contiguous();
}

}  // namespace gluon::kernels
