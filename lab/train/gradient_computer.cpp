#include "lab/train/gradient_computer.h"

#include <torch/cuda.h>
#include <torch/utils.h>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::lab {
namespace {

std::vector<torch::Tensor> clones(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const torch::Tensor& tensor : tensors) copies.push_back(tensor.defined() ? tensor.clone() : tensor);
  return copies;
}

}  // namespace

GradientGraph::GradientGraph(std::vector<Layer> layers, Work work)
    : layers_(std::move(layers)), work_(std::move(work)) {}

torch::Tensor GradientGraph::run(std::span<const Batch> batches) {
  if (runs_ < kPlainRuns) {
    ++runs_;
    return work_(batches);
  }
  if (!graph_) capture(batches);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    batches_[i].inputs.copy_(batches[i].inputs, /*non_blocking=*/true);
    batches_[i].targets.copy_(batches[i].targets, /*non_blocking=*/true);
  }
  // The layers may have other gradients since the last run.
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].parameter.mutable_grad() = gradients_[i];
  graph_->replay();
  return loss_;
}

void GradientGraph::capture(std::span<const Batch> batches) {
  batches_.clear();
  for (const Batch& batch : batches) batches_.push_back({batch.inputs.clone(), batch.targets.clone()});
  for (Layer& layer : layers_) layer.parameter.mutable_grad() = torch::Tensor();
  graph_.emplace(batches_[0].inputs.device(), [&] { loss_ = work_(batches_); });
  for (const Layer& layer : layers_) gradients_.push_back(layer.parameter.grad());
}

int64_t batches_per_step(const TrainConfig& config, const Dataset& dataset) {
  return config.full_batch ? dataset.train_examples() / config.batch : config.accumulate;
}

GradientComputer::GradientComputer(const TrainConfig& config, std::shared_ptr<Model> model,
                                   std::shared_ptr<const Dataset> dataset, const RankShare& share, Optimizer& optimizer)
    : config_(config),
      device_(model->parameters().front().device()),
      model_(std::move(model)),
      dataset_(std::move(dataset)),
      share_(share),
      optimizer_(optimizer),
      batches_per_step_(lab::batches_per_step(config, *dataset_)),
      // A full batch uses the same batches in every step: there is no next one to prepare.
      train_batches_(dataset_, config.batch, device_, device_.is_cuda() && !config.full_batch, share) {
  GLUON_CHECK(!config_.full_batch || dataset_->train_examples() % config_.batch == 0,
              "--full-batch needs a --batch that divides the ", dataset_->train_examples(), " training examples, got ",
              config_.batch);
  choose_precision();
  if (!can_use_graph()) return;
  graph_.emplace(optimizer_.layers(), [this](std::span<const Batch> batches) {
    StepTiming unused;  // the graph is timed as a whole
    return run_batches(batches, unused);
  });
}

void GradientComputer::choose_precision() {
  if (config_.precision != "float32" && device_.is_cuda() && !config_.smooths_language() &&
      model_->set_compute_type(torch::kBFloat16)) {
    compute_type_ = torch::kBFloat16;
  }
  GLUON_CHECK(compute_type_ == torch::kBFloat16 || config_.precision != "bfloat16",
              "--precision bfloat16 needs --device cuda, and for language models a Hopper GPU, a build with "
              "the CUDA kernels, QK norm and no label smoothing; got --model ",
              config_.model, " --device ", config_.device, " --qk-norm ", config_.qk_norm, " --label-smoothing ",
              config_.resolved_label_smoothing());
}

bool GradientComputer::can_use_graph() const {
  // The device may not hold all batches of a full batch at once.
  return config_.cuda_graph && device_.is_cuda() && !config_.full_batch && !share_.is_exact() &&
         kernels::why_unavailable(device_).empty();
}

torch::Tensor GradientComputer::compute(int64_t step, StepTiming& timing) {
  const int64_t first = config_.full_batch ? 0 : step * batches_per_step_;
  return graph_ && !time_stages_ ? run_graph(first, timing) : run_parts(first, timing);
}

torch::Tensor GradientComputer::run_graph(int64_t first, StepTiming& timing) {
  Stopwatch watch;
  optimizer_.zero_grad();
  std::vector<Batch> batches;
  for (int64_t i = 0; i < batches_per_step_; ++i) batches.push_back(train_batches_.get(first + i));
  const torch::Tensor mean = graph_->run(batches);
  timing.forward += watch.lap();
  return mean;
}

torch::Tensor GradientComputer::run_parts(int64_t first, StepTiming& timing) {
  Stopwatch watch;
  optimizer_.zero_grad();
  torch::Tensor mean = torch::zeros({}, torch::device(device_).dtype(torch::kDouble));
  for (int64_t i = 0; i < batches_per_step_; ++i) {
    const std::vector<Batch> parts = share_.parts(train_batches_.get(first + i), config_.batch);
    if (i == 0) optimizer_.begin_gradients(batches_per_step_ * static_cast<int64_t>(parts.size()));
    timing.forward += watch.lap();
    for (const Batch& part : parts) mean = mean + run_batches(std::span(&part, 1), timing);
    watch.lap();
  }
  return mean;
}

torch::Tensor GradientComputer::run_batches(std::span<const Batch> batches, StepTiming& timing) {
  torch::Tensor mean;
  Stopwatch watch;
  for (const Batch& batch : batches) {
    torch::Tensor loss =
        model_->loss(batch, config_.resolved_label_smoothing()) / static_cast<double>(batches_per_step_);
    const int64_t examples = batch.inputs.size(0);
    if (examples < config_.batch) {
      loss = loss * (static_cast<double>(examples) / static_cast<double>(config_.batch));
    }
    mean = mean.defined() ? mean + loss.detach() : loss.detach();
    finish_stage();
    timing.forward += watch.lap();
    loss.backward();
    finish_stage();
    timing.backward += watch.lap();
  }
  return mean;
}

void GradientComputer::finish_stage() const {
  if (time_stages_ && device_.is_cuda()) torch::cuda::synchronize(device_.index());
}

void GradientComputer::look_ahead(int64_t step, const std::function<void()>& observe) {
  std::vector<torch::Tensor> gradients;
  for (const Layer& layer : optimizer_.layers()) gradients.push_back(layer.parameter.grad());
  std::vector<torch::Tensor> values;  // the graph writes all gradients to the same memory
  if (graph_) values = clones(gradients);
  const std::vector<torch::Tensor> buffers = clones(model_->buffers());  // running statistics

  StepTiming unused;
  compute(step, unused);
  optimizer_.reduce_gradients();
  observe();

  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (graph_ && values[i].defined()) gradients[i].copy_(values[i]);
    optimizer_.layers()[i].parameter.mutable_grad() = gradients[i];
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) model_->buffers()[i].copy_(buffers[i]);
}

void GradientComputer::reject_batch() {
  graph_.reset();
  optimizer_.zero_grad();
  int64_t fits = config_.batch / 2;
  while (fits >= 1 && !batch_fits(fits)) fits /= 2;
  throw InputError(join("the GPU's memory does not hold --batch ", config_.batch, "; ",
                        fits > 0 ? join("--batch ", fits, " fits, and --accumulate keeps the examples per step")
                                 : std::string("not even --batch 1 fits: use a smaller model or a shorter sequence")));
}

bool GradientComputer::batch_fits(int64_t batch) {
  try {
    // The optimizer needs its scratch memory beside the batch.
    const torch::Tensor scratch =
        torch::empty({optimizer_.options().scratch_bytes}, torch::device(device_).dtype(torch::kByte));
    const Batch examples = dataset_->train_batch(0, batch);
    model_->loss({examples.inputs.to(device_), examples.targets.to(device_)}, config_.resolved_label_smoothing())
        .backward();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    optimizer_.zero_grad();
    return false;
  }
}

std::string GradientComputer::precision() const {
  const bool half = compute_type_ == torch::kBFloat16;
  std::string text = half ? "bfloat16" : "float32";
  if (!device_.is_cuda()) return text;
  const std::string why = kernels::why_unavailable(device_);
  if (!half && config_.precision.empty() && why.empty()) {
    text += config_.smooths_language() ? " because of label smoothing"
            : config_.qk_norm          ? " because there are no bfloat16 kernels"
                                       : " because the bfloat16 kernels contain QK norm";
  }
  if (const std::string part = model_->slow_part(); !part.empty()) text += join(" (slow: ", part, ")");
  if (graph_) return text + ", forward and backward pass as one CUDA graph";
  return why.empty() ? text : join(text, ", without kernels and CUDA graph: ", why);
}

}  // namespace gluon::lab
