#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda/update.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/fused_step.h"

namespace gluon::kernels {
namespace {

constexpr std::size_t kMostPieces = 8;  // that orthogonalize() takes in one launch

int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t entries(const at::Tensor& stack) { return stack.size(1) * stack.size(2); }

bool is_sign(const FusedStack& stack) { return stack.form.kind == LmoForm::Kind::kSign; }

// The last product can add to the parameters itself; it cannot shrink them.
bool moved_by_iteration(const FusedStack& stack) { return stack.decay == 0 && stack.momentum.size(2) % 64 == 0; }

// Values of the host in device memory, sent again only when they change. The memory stays where it is as long as the
// number of values does, so that a CUDA graph may read it.
template <typename T> class Mirror {
 public:
  // `like` gives the device and the values' dtype. Returns whether the memory has moved.
  bool send(std::vector<T> values, const at::TensorOptions& like) {
    if (values == host_) return false;
    host_.clear();  // should a line below throw, everything is sent again
    const auto size = static_cast<int64_t>(values.size());
    const bool moved = !device_.defined() || device_.size(0) != size;
    if (moved) device_ = at::empty({size}, like);
    // The caching allocator does not hand out pinned memory again before its copy has been made.
    const at::Tensor pinned = at::empty({size}, at::TensorOptions().dtype(device_.dtype()).pinned_memory(true));
    std::memcpy(pinned.data_ptr(), values.data(), values.size() * sizeof(T));
    device_.copy_(pinned, /*non_blocking=*/true);
    host_ = std::move(values);
    return moved;
  }

  T* data() const { return static_cast<T*>(device_.data_ptr()); }

 private:
  std::vector<T> host_;
  at::Tensor device_;
};

// Matrices [first, first + count) of a stack.
struct Piece {
  std::size_t stack;
  int64_t first, count;
};

}  // namespace

struct FusedStep::Device {
  Device(std::vector<FusedStack> all, int64_t scratch_bytes);
  ~Device();

  void send(std::span<const Inputs> inputs);
  void measure_momentum(cudaStream_t stream);
  void enqueue(cudaStream_t stream);
  cuda::Verdict* verdict() const { return static_cast<cuda::Verdict*>(verdict_memory.data_ptr()); }
  uint64_t reported() const { return *static_cast<const volatile uint64_t*>(report.data_ptr()); }
  void capture();

  cuda::MomentumStep momentum_step(const Piece& piece) const;
  cuda::ParameterUpdate parameter_update(const Piece& piece) const;
  Piece all_of(std::size_t stack) const { return {stack, 0, stacks[stack].momentum.size(0)}; }
  void move_chunk(std::span<const Piece> chunk, cudaStream_t stream);
  void plan_chunks(int64_t scratch_bytes);
  std::vector<cuda::OrthogonalizeStack> half_stacks(std::span<const Piece> chunk, char* memory) const;
  int64_t chunk_bytes(std::span<const Piece> chunk) const;

  std::vector<FusedStack> stacks;
  std::vector<int64_t> first_matrix;  // of each stack, and the total
  std::vector<int64_t> first_gradient_sum, first_momentum_sum;
  cuda::OrthogonalizeOptions options;
  std::vector<std::vector<Piece>> chunks;

  Mirror<int64_t> tables;  // gradients, then parameters
  Mirror<float> scalars;   // {beta, 1 - beta} of each stack, then the radii
  at::Tensor gradient_squares, momentum_squares, scales, verdict_memory, scratch;
  bool momentum_measured = false;
  at::Tensor report;       // verdict_report() on the host, pinned
  unsigned judgement = 0;  // number of runs so far
  cudaEvent_t ran = nullptr;

  cudaGraphExec_t graph = nullptr;
};

FusedStep::Device::Device(std::vector<FusedStack> all, int64_t scratch_bytes) : stacks(std::move(all)) {
  GLUON_CHECK(!stacks.empty(), "FusedStep: expected at least one stack, got none");
  const c10::cuda::CUDAGuard guard(stacks[0].momentum.device());
  for (auto* list : {&first_matrix, &first_gradient_sum, &first_momentum_sum}) list->push_back(0);
  for (const FusedStack& stack : stacks) {
    const int64_t count = stack.momentum.size(0), size = entries(stack.momentum);
    first_matrix.push_back(first_matrix.back() + count);
    first_gradient_sum.push_back(first_gradient_sum.back() + count * cuda::gradient_partials(size));
    first_momentum_sum.push_back(first_momentum_sum.back() + count * cuda::momentum_partials(size));
  }
  for (const FusedStack& stack : stacks) {
    if (!is_sign(stack)) options = {.coefficients = stack.form.coefficients, .safety = stack.form.safety};
  }
  const at::TensorOptions float32 = stacks[0].momentum.options();
  gradient_squares = at::empty({first_gradient_sum.back()}, float32.dtype(at::kDouble));
  momentum_squares = at::empty({first_momentum_sum.back()}, float32.dtype(at::kDouble));
  scales = at::empty({first_matrix.back(), 2}, float32);
  verdict_memory = at::zeros({static_cast<int64_t>(sizeof(cuda::Verdict))}, float32.dtype(at::kByte));
  report = at::zeros({1}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
  plan_chunks(scratch_bytes);
  check(cudaEventCreateWithFlags(&ran, cudaEventDisableTiming), "cudaEventCreate");
}

FusedStep::Device::~Device() {
  if (ran != nullptr) {
    cudaEventSynchronize(ran);  // the verdict may still be written to it
    cudaEventDestroy(ran);
  }
  if (graph != nullptr) cudaGraphExecDestroy(graph);
}

// As few chunks as the scratch memory allows.
void FusedStep::Device::plan_chunks(int64_t scratch_bytes) {
  std::vector<Piece> chunk;
  int64_t most = 0;
  const auto close = [&] {
    if (chunk.empty()) return;
    most = std::max(most, chunk_bytes(chunk));
    chunks.push_back(std::exchange(chunk, {}));
  };
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (is_sign(stacks[i])) continue;
    const int64_t count = stacks[i].momentum.size(0);
    for (int64_t first = 0; first < count;) {
      chunk.push_back({i, first, 1});
      if (chunk.size() > 1 && (chunk.size() > kMostPieces || chunk_bytes(chunk) > scratch_bytes)) {
        chunk.pop_back();
        close();
        continue;
      }
      Piece& piece = chunk.back();
      // Bytes grow almost evenly with the count.
      int64_t low = 1;
      for (int64_t high = std::min<int64_t>(count - first, cuda::kMaxMatrices); low < high;) {
        piece.count = (low + high + 1) / 2;
        if (chunk_bytes(chunk) <= scratch_bytes) {
          low = piece.count;
        } else {
          high = piece.count - 1;
        }
      }
      piece.count = low;
      first += low;
      if (first < count) close();
    }
  }
  close();
  scratch = at::empty({most}, stacks[0].momentum.options().dtype(at::kByte));
}

int64_t FusedStep::Device::chunk_bytes(std::span<const Piece> chunk) const {
  int64_t bytes = 0;
  for (const Piece& piece : chunk) bytes += 4 * piece.count * entries(stacks[piece.stack].momentum);
  return round_up(bytes) + static_cast<int64_t>(cuda::orthogonalize_workspace(half_stacks(chunk, nullptr), options));
}

// Inputs and outputs of the iteration lie one after another at the beginning of the scratch memory.
std::vector<cuda::OrthogonalizeStack> FusedStep::Device::half_stacks(std::span<const Piece> chunk, char* memory) const {
  std::vector<cuda::OrthogonalizeStack> half;
  for (const Piece& piece : chunk) {
    const at::Tensor& momentum = stacks[piece.stack].momentum;
    const int64_t size = entries(momentum), bytes = 2 * piece.count * size;
    half.push_back({.count = static_cast<int>(piece.count),
                    .rows = static_cast<int>(momentum.size(1)),
                    .columns = static_cast<int>(momentum.size(2)),
                    .input = memory,
                    .input_type = cuda::ElementType::kFloat16,
                    .row_stride = momentum.size(2),
                    .matrix_stride = size,
                    .output = {reinterpret_cast<__half*>(memory + bytes), momentum.size(2), size}});
    memory += 2 * bytes;
  }
  return half;
}

void FusedStep::Device::send(std::span<const Inputs> inputs) {
  std::vector<int64_t> addresses;
  std::vector<float> values;
  for (const Inputs& input : inputs) {
    for (const void* address : input.gradients) addresses.push_back(reinterpret_cast<int64_t>(address));
    values.push_back(static_cast<float>(input.beta));
    values.push_back(static_cast<float>(1 - input.beta));
  }
  for (const Inputs& input : inputs) {
    for (const void* address : input.parameters) addresses.push_back(reinterpret_cast<int64_t>(address));
    values.insert(values.end(), input.parameters.size(), static_cast<float>(input.radius));
  }
  const at::TensorOptions float32 = stacks[0].momentum.options();
  const bool tables_moved = tables.send(std::move(addresses), float32.dtype(at::kLong));
  const bool scalars_moved = scalars.send(std::move(values), float32);
  if ((tables_moved || scalars_moved) && graph != nullptr) {
    check(cudaGraphExecDestroy(std::exchange(graph, nullptr)), "cudaGraphExecDestroy");
  }
}

cuda::MomentumStep FusedStep::Device::momentum_step(const Piece& piece) const {
  const FusedStack& stack = stacks[piece.stack];
  const int64_t size = entries(stack.momentum);
  const int64_t matrix = first_matrix[piece.stack] + piece.first;
  return {.count = piece.count,
          .size = size,
          .nesterov = stack.nesterov,
          .gradients = reinterpret_cast<const float* const*>(tables.data()) + matrix,
          .momentum = stack.momentum.data_ptr<float>() + piece.first * size,
          .weights = scalars.data() + 2 * piece.stack,
          .gradient_squares = gradient_squares.data_ptr<double>() + first_gradient_sum[piece.stack] +
                              piece.first * cuda::gradient_partials(size),
          .momentum_squares = momentum_squares.data_ptr<double>() + first_momentum_sum[piece.stack] +
                              piece.first * cuda::momentum_partials(size),
          .scales = is_sign(stack) ? nullptr : reinterpret_cast<cuda::ScalePair*>(scales.data_ptr<float>()) + matrix,
          .length = cuda::orthogonalize_input_length(static_cast<int>(stack.momentum.size(1)),
                                                     static_cast<int>(stack.momentum.size(2))),
          .verdict = verdict()};
}

cuda::ParameterUpdate FusedStep::Device::parameter_update(const Piece& piece) const {
  const FusedStack& stack = stacks[piece.stack];
  const int64_t matrix = first_matrix[piece.stack] + piece.first;
  return {.parameters = reinterpret_cast<float* const*>(tables.data()) + first_matrix.back() + matrix,
          .radii = scalars.data() + 2 * stacks.size() + matrix,
          .direction_factor = static_cast<float>(-stack.form.factor),
          .decay = static_cast<float>(stack.decay)};
}

void FusedStep::Device::measure_momentum(cudaStream_t stream) {
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (is_sign(stacks[i])) continue;
    check(cuda::measure_momentum(momentum_step(all_of(i)), stream), "measure_momentum");
  }
}

void FusedStep::Device::enqueue(cudaStream_t stream) {
  std::vector<cuda::MomentumStep> steps;
  for (std::size_t i = 0; i < stacks.size(); ++i) steps.push_back(momentum_step(all_of(i)));
  check(cuda::measure_gradients(steps, stream), "measure_gradients");
  check(cuda::judge(steps, static_cast<uint64_t*>(report.data_ptr()), stream), "judge");
  for (const auto& chunk : chunks) move_chunk(chunk, stream);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (!is_sign(stacks[i])) continue;
    check(cuda::update_by_sign(steps[i], parameter_update(all_of(i)), stream), "update_by_sign");
  }
}

void FusedStep::Device::move_chunk(std::span<const Piece> chunk, cudaStream_t stream) {
  char* memory = static_cast<char*>(scratch.data_ptr());
  std::vector<cuda::OrthogonalizeStack> half = half_stacks(chunk, memory);
  std::vector<cuda::MomentumStep> steps;
  int64_t used = 0;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    steps.push_back(momentum_step(chunk[i]));
    steps.back().output = static_cast<__half*>(const_cast<void*>(half[i].input));
    used += 4 * half[i].count * half[i].matrix_stride;
    if (!moved_by_iteration(stacks[chunk[i].stack])) continue;
    const cuda::ParameterUpdate update = parameter_update(chunk[i]);
    half[i].target = {update.parameters, update.radii, update.direction_factor, verdict()};
  }
  check(cuda::accumulate_momentum(steps, stream), "accumulate_momentum");
  used = round_up(used);
  check(cuda::orthogonalize(half, options, memory + used, static_cast<std::size_t>(scratch.size(0) - used), stream),
        "orthogonalize");
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (moved_by_iteration(stacks[chunk[i].stack])) continue;
    check(cuda::update_parameters(steps[i], half[i].output.data, parameter_update(chunk[i]), stream),
          "update_parameters");
  }
}

void FusedStep::Device::capture() {
  // The current stream may be one that cannot be captured.
  const cudaStream_t stream = at::cuda::getStreamFromPool();
  cudaGraph_t captured = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    enqueue(stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);  // the stream is one of LibTorch's pool
    cudaGraphDestroy(captured);
    throw;
  }
  check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
  cudaGraphDestroy(captured);
}

FusedStep::FusedStep(std::vector<FusedStack> stacks, int64_t scratch_bytes)
    : device_(std::make_unique<Device>(std::move(stacks), scratch_bytes)) {}

FusedStep::~FusedStep() = default;

void FusedStep::run(std::span<const Inputs> inputs) {
  Device& device = *device_;
  const c10::cuda::CUDAGuard guard(device.verdict_memory.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  device.send(inputs);
  if (!std::exchange(device.momentum_measured, true)) device.measure_momentum(stream);
  if (device.judgement > 0 && device.graph == nullptr) device.capture();
  if (device.graph != nullptr) {
    check(cudaGraphLaunch(device.graph, stream), "cudaGraphLaunch");
  } else {
    device.enqueue(stream);
  }
  ++device.judgement;
  check(cudaEventRecord(device.ran, stream), "cudaEventRecord");
}

void FusedStep::momentum_changed() { device_->momentum_measured = false; }

std::optional<FusedStep::Place> FusedStep::verdict() const {
  const Device& device = *device_;
  // The caller may be capturing a graph, which a query would break.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
  // The judgement comes early in the run; its end is only queried so as not to wait forever for a run that failed.
  while (static_cast<unsigned>(device.reported() >> 32) != device.judgement) {
    const cudaError_t state = cudaEventQuery(device.ran);
    if (state == cudaErrorNotReady) continue;
    check(state, "the step");
    GLUON_CHECK(static_cast<unsigned>(device.reported() >> 32) == device.judgement,
                "kernels: the step reported no verdict");
  }
  const int found = static_cast<int>(device.reported());
  if (found == cuda::kAllFinite) return {};
  const auto after = std::upper_bound(device.first_matrix.begin(), device.first_matrix.end(), found);
  const auto stack = static_cast<std::size_t>(after - device.first_matrix.begin()) - 1;
  return Place{stack, static_cast<std::size_t>(found - device.first_matrix[stack])};
}

}  // namespace gluon::kernels
