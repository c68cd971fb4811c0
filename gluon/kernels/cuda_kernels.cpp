#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>
#include <string_view>

#include "gluon/core/check.h"
#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/kernels.h"
#include "gluon/kernels/polar_stage.h"

namespace gluon::kernels {
namespace {

bool portable_is_forced() {
  static const bool forced = [] {
    const char* value = std::getenv("GLUON_PORTABLE_KERNELS");
    const std::string_view text = value == nullptr ? "0" : value;
    GLUON_CHECK(text == "0" || text == "1", "GLUON_PORTABLE_KERNELS: expected 0 or 1, got '", text, "'");
    return text == "1";
  }();
  return forced;
}

}  // namespace

std::string why_unavailable(const at::Device& device) {
  if (!device.is_cuda()) return "the layers are not on a GPU";
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  if (properties->major == 9 && properties->minor == 0) return {};
  return join(properties->name, " has compute capability ", properties->major, ".", properties->minor,
              ", the kernels need 9.0 (H100, H200)");
}

StepPath step_path(const at::Device& device) {
  if (!device.is_cuda() || at::cuda::getDeviceProperties(device.index())->major < 8) return StepPath::kPlain;
  return why_unavailable(device).empty() && !portable_is_forced() ? StepPath::kHopper : StepPath::kPortable;
}

std::string why_not_hopper(const at::Device& device) {
  const StepPath path = step_path(device);
  const std::string why = why_unavailable(device);
  if (path == StepPath::kPortable && why.empty()) {
    return join("GLUON_PORTABLE_KERNELS is 1 (", at::cuda::getDeviceProperties(device.index())->name,
                ", compute capability 9.0)");
  }
  if (path == StepPath::kPlain && device.is_cuda()) return join(why, ", the portable ones 8.0 or later");
  return why;
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
  std::vector<PolarStep> steps = form.steps;
  PolarStep& last = steps.back();
  last.linear *= -form.factor;
  last.squares.back().factor *= -form.factor;
  last.squares.back().offset *= -form.factor;
  const cuda::OrthogonalizeStack stack{
      .count = static_cast<int>(batch.size(0)),
      .rows = static_cast<int>(batch.size(1)),
      .columns = static_cast<int>(batch.size(2)),
      .input = input.data_ptr<float>(),
      .input_type = cuda::ElementType::kFloat32,
      .row_stride = batch.size(2),
      .matrix_stride = batch.size(1) * batch.size(2),
      .output = {static_cast<__half*>(output.data_ptr()), row_stride, batch.size(1) * row_stride}};
  const cuda::OrthogonalizeOptions options{.steps = steps, .safety = form.safety};
  const auto bytes = cuda::orthogonalize_workspace({&stack, 1}, options);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, batch.options().dtype(at::kByte));
  check(cuda::orthogonalize({&stack, 1}, options, workspace.data_ptr(), bytes, at::cuda::getCurrentCUDAStream()),
        "orthogonalize");
  return row_stride == batch.size(2) ? output : output.narrow(2, 0, batch.size(2)).contiguous();
}

at::Tensor portable_polar_lmo(const at::Tensor& batch, const LmoForm& form) {
  if (batch.size(0) > cuda::kMaxMatrices) {
    std::vector<at::Tensor> parts = batch.split(cuda::kMaxMatrices);
    for (at::Tensor& part : parts) part = portable_polar_lmo(part, form);
    return at::cat(parts);
  }
  const c10::cuda::CUDAGuard guard(batch.device());
  const int64_t rows = batch.size(1), columns = batch.size(2), padded = (columns + 7) / 8 * 8;
  const auto one_if_zero = [](const at::Tensor& x) { return x + (x == 0); };
  const float length = cuda::orthogonalize_input_length(static_cast<int>(rows), static_cast<int>(columns));
  at::Tensor scaled = batch / one_if_zero(batch.abs().amax({1, 2}, true));
  scaled.mul_(length / one_if_zero(at::linalg_vector_norm(scaled, 2, {1, 2}, true)));
  // Columns of zeros change nothing.
  const at::Tensor x = at::zeros({batch.size(0), rows, padded}, batch.options().dtype(at::kHalf));
  x.narrow(2, 0, columns).copy_(scaled);
  const at::Tensor other = at::empty_like(x);
  PolarPiece piece{.count = static_cast<int>(batch.size(0)),
                   .stack_count = static_cast<int>(batch.size(0)),
                   .rows = static_cast<int>(rows),
                   .columns = static_cast<int>(padded),
                   .x = static_cast<__half*>(x.data_ptr()),
                   .other = static_cast<__half*>(other.data_ptr())};
  const std::unique_ptr<PolarStage> stage = portable_polar(form.steps, form.safety);
  const int64_t bytes = stage->workspace_bytes({&piece, 1});
  const at::Tensor workspace = at::empty({bytes}, batch.options().dtype(at::kByte));
  stage->run({&piece, 1}, workspace.data_ptr(), bytes, at::cuda::getCurrentCUDAStream());
  const at::Tensor& polar = piece.x == x.data_ptr() ? x : other;
  return polar.narrow(2, 0, columns).mul(-form.factor).contiguous();
}

}  // namespace gluon::kernels
