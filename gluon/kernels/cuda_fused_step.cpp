#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/cuda/step_factors.h"
#include "gluon/kernels/cuda/update.h"
#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/cuda_handles.h"
#include "gluon/kernels/fused_step.h"
#include "gluon/kernels/kernels.h"
#include "gluon/kernels/polar_stage.h"

namespace gluon::kernels {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t entries(const at::Tensor& stack) { return stack.size(1) * stack.size(2); }

// Of one half precision buffer for so many of the stack's matrices.
int64_t buffer_bytes(int64_t count, const FusedStack& stack) { return round_up(2 * count * entries(stack.momentum)); }

bool is_sign(const FusedStack& stack) { return stack.form.kind == LmoForm::Kind::kSign; }

bool needs_factors(const FusedStack& stack) { return stack.normalization.second.defined() || stack.sphere > 0; }

// Of the polar factors, D = -factor P.
cuda::SecondMoments second_moments(const FusedStack& stack) {
  using Kind = cuda::SecondMoments::Kind;
  const auto& [second, beta, eps, unit] = stack.normalization;
  if (!second.defined()) return {};
  return {.kind = second.size(2) == 1 ? Kind::kRows : Kind::kEntries,
          .values = second.data_ptr<float>(),
          .columns = stack.momentum.size(2),
          .beta = static_cast<float>(beta),
          .eps = static_cast<float>(eps),
          .unit = unit / stack.form.factor};
}

// Matrices [first, first + count) of a stack.
struct Piece {
  std::size_t stack;
  int64_t first, count;
};

at::Tensor allocate_scratch(int64_t bytes, const at::TensorOptions& like) {
  try {
    return at::empty({bytes}, like.dtype(at::kByte));
  } catch (const c10::OutOfMemoryError&) {
    throw InputError(join("kernels: the GPU has no ", (bytes >> 20) + 1,
                          " MiB left for the optimizer's fused step; set ",
                          "OptimizerOptions::scratch_bytes to less, or train with a smaller batch"));
  }
}

}  // namespace

struct FusedStep::Device {
  Device(std::vector<FusedStack> all, int64_t scratch_bytes);
  ~Device() {
    if (unfinished) cudaDeviceSynchronize();  // no event tells when a run that failed has ended
  }

  void send(std::span<const Inputs> inputs);
  void measure_momentum(cudaStream_t stream);
  void enqueue(cudaStream_t stream);
  cuda::Verdict* verdict() const { return static_cast<cuda::Verdict*>(verdict_memory.data_ptr()); }
  uint64_t reported() const { return *static_cast<const volatile uint64_t*>(report.data_ptr()); }
  unsigned reported_judgement() const { return static_cast<unsigned>(reported() >> 32); }

  cuda::MomentumStep momentum_step(const Piece& piece) const;
  cuda::ParameterUpdate parameter_update(const Piece& piece) const;
  Piece all_of(std::size_t stack) const { return {stack, 0, stacks[stack].momentum.size(0)}; }
  // The last product can add to the parameters itself; it cannot shrink them, and knows no matrix as a whole.
  bool moved_by_iteration(const FusedStack& stack) const {
    return !stack.decays && !needs_factors(stack) && polar->moves_parameters(stack.momentum.size(2));
  }
  void move_piece(const Piece& piece, const cuda::MomentumStep& step, const __half* directions, cudaStream_t stream);
  void move_chunk(std::span<const Piece> chunk, cudaStream_t stream);
  void plan_chunks(int64_t scratch_bytes);
  std::vector<std::vector<Piece>> chunks_within(int64_t scratch_bytes) const;
  std::vector<PolarPiece> polar_pieces(std::span<const Piece> chunk, char* memory) const;
  int64_t chunk_bytes(std::span<const Piece> chunk) const;

  std::vector<FusedStack> stacks;
  std::vector<int64_t> first_matrix;  // of each stack, and the total
  std::vector<int64_t> first_gradient_sum, first_momentum_sum;
  std::unique_ptr<PolarStage> polar;  // null without kPolar stacks
  std::vector<std::vector<Piece>> chunks;

  Mirror<int64_t> tables;  // gradients, then parameters
  Mirror<float> scalars;   // {beta, 1 - beta} of each stack, then the radii, then the decay of each stack
  at::Tensor gradient_squares, momentum_squares, scales, verdict_memory, scratch;
  at::Tensor factors;                                   // (matrices, 2), of stacks that need them
  std::vector<at::Tensor> direction_sums, sphere_sums;  // of each stack; undefined where it needs none
  bool momentum_measured = false;
  at::Tensor report;        // verdict_report() on the host, pinned
  unsigned judgement = 0;   // number of judgements that the runs so far have asked for
  bool unfinished = false;  // a run failed halfway: how many there were only the device knows
  bool warm = false;        // a run has succeeded, so that all its kernels are loaded and it can be captured

  // Destroyed in the reverse order: the last run ends before anything that it uses is gone.
  Owned<cudaStream_t> stream;
  Owned<cudaGraphExec_t> graph;
  Owned<cudaEvent_t> ran;
};

FusedStep::Device::Device(std::vector<FusedStack> all, int64_t scratch_bytes) : stacks(std::move(all)) {
  GLUON_CHECK(!stacks.empty(), "FusedStep: expected at least one stack, got none");
  const at::Device device = stacks[0].momentum.device();
  const StepPath path = step_path(device);
  GLUON_CHECK(path != StepPath::kPlain, "FusedStep: ", why_not_hopper(device));
  const c10::cuda::CUDAGuard guard(device);
  for (auto* list : {&first_matrix, &first_gradient_sum, &first_momentum_sum}) list->push_back(0);
  for (const FusedStack& stack : stacks) {
    const int64_t count = stack.momentum.size(0), size = entries(stack.momentum);
    first_matrix.push_back(first_matrix.back() + count);
    first_gradient_sum.push_back(first_gradient_sum.back() + count * cuda::gradient_partials(size));
    first_momentum_sum.push_back(first_momentum_sum.back() + count * cuda::momentum_partials(size));
    if (is_sign(stack) || polar) continue;
    polar = (path == StepPath::kHopper ? hopper_polar : portable_polar)(stack.form.steps, stack.form.safety);
  }
  const at::TensorOptions float32 = stacks[0].momentum.options();
  gradient_squares = at::empty({first_gradient_sum.back()}, float32.dtype(at::kDouble));
  momentum_squares = at::empty({first_momentum_sum.back()}, float32.dtype(at::kDouble));
  scales = at::empty({first_matrix.back(), 2}, float32);
  verdict_memory = at::zeros({static_cast<int64_t>(sizeof(cuda::Verdict))}, float32.dtype(at::kByte));
  report = at::zeros({1}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
  factors = at::empty({first_matrix.back(), 2}, float32);
  for (const FusedStack& stack : stacks) {
    const int64_t count = stack.momentum.size(0), size = entries(stack.momentum);
    const auto sums = [&](bool needed, int64_t partials, int64_t kinds) {
      return needed ? at::empty({count, partials, kinds}, float32.dtype(at::kDouble)) : at::Tensor();
    };
    const cuda::SecondMoments second = second_moments(stack);
    direction_sums.push_back(sums(stack.normalization.second.defined(), cuda::direction_partials(second, size), 2));
    sphere_sums.push_back(sums(stack.sphere > 0, cuda::sphere_partials(size), 3));
  }
  plan_chunks(scratch_bytes);
  stream = make_stream();
  ran = make_event();
}

// As few chunks as the scratch memory allows, with the smallest limit that gives as few: even chunks keep the GPU busier
// than full ones and a rest.
void FusedStep::Device::plan_chunks(int64_t scratch_bytes) {
  chunks = chunks_within(scratch_bytes);
  for (int64_t little = 0, enough = scratch_bytes; enough - little > enough / 64;) {
    const int64_t limit = little + (enough - little) / 2;
    auto even = chunks_within(limit);
    if (even.size() > chunks.size()) {
      little = limit;
    } else {
      chunks = std::move(even);
      enough = limit;
    }
  }
  int64_t most = 0;
  for (const auto& chunk : chunks) most = std::max(most, chunk_bytes(chunk));
  scratch = allocate_scratch(most, stacks[0].momentum.options());
}

std::vector<std::vector<Piece>> FusedStep::Device::chunks_within(int64_t scratch_bytes) const {
  std::vector<std::vector<Piece>> chunks;
  std::vector<Piece> chunk;
  const auto close = [&] {
    if (!chunk.empty()) chunks.push_back(std::exchange(chunk, {}));
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
  return chunks;
}

int64_t FusedStep::Device::chunk_bytes(std::span<const Piece> chunk) const {
  int64_t bytes = 0;
  for (const Piece& piece : chunk) bytes += 2 * buffer_bytes(piece.count, stacks[piece.stack]);
  return bytes + polar->workspace_bytes(polar_pieces(chunk, nullptr));
}

// Their two buffers lie one after another at the beginning of the scratch memory.
std::vector<PolarPiece> FusedStep::Device::polar_pieces(std::span<const Piece> chunk, char* memory) const {
  std::vector<PolarPiece> pieces;
  for (const Piece& piece : chunk) {
    const FusedStack& stack = stacks[piece.stack];
    pieces.push_back({.count = static_cast<int>(piece.count),
                      .stack_count = static_cast<int>(std::min<int64_t>(stack.momentum.size(0), cuda::kMaxMatrices)),
                      .rows = static_cast<int>(stack.momentum.size(1)),
                      .columns = static_cast<int>(stack.momentum.size(2))});
    if (memory == nullptr) continue;
    const int64_t bytes = buffer_bytes(piece.count, stack);
    pieces.back().x = reinterpret_cast<__half*>(memory);
    pieces.back().other = reinterpret_cast<__half*>(memory + bytes);
    memory += 2 * bytes;
  }
  return pieces;
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
  for (const Inputs& input : inputs) values.push_back(static_cast<float>(input.decay));
  const at::TensorOptions float32 = stacks[0].momentum.options();
  const bool tables_moved = tables.send(std::move(addresses), float32.dtype(at::kLong));
  const bool scalars_moved = scalars.send(std::move(values), float32);
  if (tables_moved || scalars_moved) graph.reset();
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
  const float* radii = scalars.data() + 2 * stacks.size();
  cuda::SecondMoments second = second_moments(stack);
  if (second.values != nullptr) second.values += piece.first * stack.normalization.second.stride(0);
  return {.parameters = reinterpret_cast<float* const*>(tables.data()) + first_matrix.back() + matrix,
          .radii = radii + matrix,
          .direction_factor = static_cast<float>(-stack.form.factor),
          .decay = stack.decays ? radii + first_matrix.back() + piece.stack : nullptr,
          .cautious = stack.cautious,
          .second = second};
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
  std::vector<PolarPiece> pieces = polar_pieces(chunk, memory);
  std::vector<cuda::MomentumStep> steps;
  int64_t used = 0;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const FusedStack& stack = stacks[chunk[i].stack];
    steps.push_back(momentum_step(chunk[i]));
    steps.back().output = pieces[i].x;
    used += 2 * buffer_bytes(chunk[i].count, stack);
    if (!moved_by_iteration(stack)) continue;
    const cuda::ParameterUpdate update = parameter_update(chunk[i]);
    pieces[i].target = {update.parameters, update.radii, update.direction_factor, verdict()};
  }
  check(cuda::accumulate_momentum(steps, stream), "accumulate_momentum");
  polar->run(pieces, memory + used, scratch.size(0) - used, stream);
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (!moved_by_iteration(stacks[chunk[i].stack])) move_piece(chunk[i], steps[i], pieces[i].x, stream);
  }
}

void FusedStep::Device::move_piece(const Piece& piece, const cuda::MomentumStep& step, const __half* directions,
                                   cudaStream_t stream) {
  const FusedStack& stack = stacks[piece.stack];
  cuda::ParameterUpdate update = parameter_update(piece);
  if (needs_factors(stack)) {
    const auto sums_of = [&](const at::Tensor& all) {
      return all.defined() ? all.data_ptr<double>() + piece.first * all.stride(0) : nullptr;
    };
    const cuda::StepSums sums{sums_of(direction_sums[piece.stack]), sums_of(sphere_sums[piece.stack])};
    if (sums.directions != nullptr) {
      check(cuda::fold_directions(step, directions, update.second, sums.directions, stream), "fold_directions");
    }
    if (sums.spheres != nullptr) {
      check(cuda::measure_spheres(step, directions, update, sums.spheres, stream), "measure_spheres");
    }
    auto* made =
        reinterpret_cast<cuda::StepFactors*>(factors.data_ptr<float>()) + first_matrix[piece.stack] + piece.first;
    check(cuda::make_factors(step, update, sums, stack.sphere, made, stream), "make_factors");
    update.factors = made;
  }
  check(cuda::update_parameters(step, directions, update, stream), "update_parameters");
}

FusedStep::FusedStep(std::vector<FusedStack> stacks, int64_t scratch_bytes)
    : device_(std::make_unique<Device>(std::move(stacks), scratch_bytes)) {}

FusedStep::~FusedStep() = default;

void FusedStep::run(std::span<const Inputs> inputs) {
  Device& device = *device_;
  const c10::cuda::CUDAGuard guard(device.verdict_memory.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  if (std::exchange(device.unfinished, true)) {
    check(cudaDeviceSynchronize(), "the step before this one");
    device.judgement = device.reported_judgement();
  }
  device.send(inputs);
  if (!std::exchange(device.momentum_measured, true)) device.measure_momentum(stream);
  if (device.warm && device.graph == nullptr) {
    // The current stream may be one that cannot be captured.
    device.graph = capture_graph(device.stream.get(), [&](cudaStream_t captured) { device.enqueue(captured); });
  }
  if (device.graph != nullptr) {
    check(cudaGraphLaunch(device.graph.get(), stream), "cudaGraphLaunch");
  } else {
    device.enqueue(stream);
  }
  check(cudaEventRecord(device.ran.get(), stream), "cudaEventRecord");
  ++device.judgement;
  device.warm = true;
  device.unfinished = false;
}

void FusedStep::momentum_changed() { device_->momentum_measured = false; }

std::optional<FusedStep::Place> FusedStep::verdict() const {
  const Device& device = *device_;
  // The caller may be capturing a graph, which a query would break.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed{cudaStreamCaptureModeRelaxed};
  // The judgement comes early in the run; its end is only queried so as not to wait forever for a run that failed.
  while (device.reported_judgement() != device.judgement) {
    const cudaError_t state = cudaEventQuery(device.ran.get());
    if (state == cudaErrorNotReady) continue;
    check(state, "the step");
    GLUON_CHECK(device.reported_judgement() == device.judgement, "kernels: the step reported no verdict");
  }
  const int found = static_cast<int>(device.reported());
  if (found == cuda::kAllFinite) return {};
  const auto after = std::upper_bound(device.first_matrix.begin(), device.first_matrix.end(), found);
  const auto stack = static_cast<std::size_t>(after - device.first_matrix.begin()) - 1;
  return Place{stack, static_cast<std::size_t>(found - device.first_matrix[stack])};
}

}  // namespace gluon::kernels
