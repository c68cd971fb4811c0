#include "lab/train/trainer.h"

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/kernels/kernels.h"
#include "gluon/smoothness/gather_samples.h"
#include "gluon/version.h"
#include "lab/train/mean_radii.h"
#include "lab/train/stopwatch.h"

namespace gluon::lab {
namespace {

void check_device(const TrainConfig& config) {
  GLUON_CHECK(config.device != "cuda" || torch::cuda::is_available(),
              "--device cuda: no CUDA device is available, or this LibTorch was built without CUDA");
}

OptimizerOptions optimizer_options(const TrainConfig& config, const RankShare& share) {
  OptimizerOptions options;
  options.collective = share.collective();
  options.reduction = {.mean = false, .exact = share.is_exact()};  // losses are weighted by their examples
  if (!config.momentum.empty()) options.momentum = make_momentum(config.momentum);
  if (!config.orthogonalizer.empty()) options.orthogonalizer = config.orthogonalizer;
  options.schedule = config.resolved_schedule();
  if (config.preset == "adamw") options.adamw.clip = config.clip;
  return options;
}

// Of the whole process.
void make_deterministic() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // as cuBLAS asks for
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setBenchmarkCuDNN(false);
}

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : model.named_parameters()) tensors[entry.key()] = entry.value();
  for (const auto& entry : model.named_buffers()) tensors[entry.key()] = entry.value();
  return tensors;
}

// Seconds left, from the mean over the steps taken since this process began.
double estimate_left(double seconds, int64_t taken, int64_t left) {
  return taken == 0 ? 0 : seconds / static_cast<double>(taken) * static_cast<double>(left);
}

}  // namespace

Trainer::Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
                 CollectivePtr collective)
    : config_((config.validate(), check_device(config), std::move(config))),
      model_((model->to(torch::Device(config_.device)), std::move(model))),
      dataset_(std::move(dataset)),
      share_(collective, config_.parts_for(collective ? collective->size() : 0)),
      optimizer_(model_->layers(), config_.geometry(), optimizer_options(config_, share_)),
      // All batches of a full one come round again: there is no next one to prepare.
      train_batches_(dataset_, config_.batch, torch::Device(config_.device),
                     config_.device == "cuda" && !config_.full_batch, share_) {
  check_ranks();
  if (config_.deterministic) make_deterministic();
  GLUON_CHECK(!config_.full_batch || dataset_->train_examples() % config_.batch == 0,
              "--full-batch needs a --batch that divides the ", dataset_->train_examples(),
              " training examples, got ", config_.batch);
  half_ = config_.precision != "float32" && config_.device == "cuda" && !config_.smooths_language() &&
          model_->set_compute_type(torch::kBFloat16);
  GLUON_CHECK(half_ || config_.precision != "bfloat16",
              "--precision bfloat16 needs --device cuda, and for language models a Hopper GPU, a build with "
              "the CUDA kernels and no label smoothing; got --model ",
              config_.model, " --device ", config_.device, " --label-smoothing ",
              config_.resolved_label_smoothing());
  if (uses_graph()) {
    graph_.emplace(optimizer_.layers(),
                   [this](std::span<const Batch> batches) { return compute_gradients(batches); });
  }
  if (config_.smoothness_every == 0) return;
  recorder_ = std::make_shared<Recorder>(
      optimizer_.layers(), config_.measuring_geometry(),
      RecorderOptions{.every = config_.smoothness_every,
                      .estimator = config_.estimator(),
                      .dual = config_.smoothness_dual,
                      .measures = [this](std::size_t layer) { return optimizer_.owns(layer); }});
  optimizer_.add_observer(recorder_);
}

double Trainer::step() {
  model_->train();
  timing_ = {};
  torch::Tensor loss;
  Stopwatch watch;
  try {
    loss = compute_gradients(steps_taken());
    watch.lap();
    optimizer_.reduce_gradients();
    timing_.backward += watch.lap();
    if (recorder_ && recorder_->needs_reference(steps_taken())) {
      if (graph_) loss = loss.clone();
      take_reference();
    }
  } catch (const c10::OutOfMemoryError&) {
    refuse_batch();
  }
  watch.lap();
  optimizer_.step();
  wait_for_device();
  timing_.optimizer = watch.lap();
  const double value = share_.sum({loss.item<double>()})[0];
  optimizer_.wait();
  return value;
}

void Trainer::check_ranks() const {
  if (share_.alone()) return;
  const int ranks = share_.collective()->size();
  GLUON_CHECK(share_.is_exact() || config_.batch >= ranks, "--batch must be at least the ", ranks,
              " ranks that share it, got ", config_.batch);
  RunIdentity all = identity();
  all["version"] = kVersion;
  all["data"] = dataset_->describe();
  check_agreement(*share_.collective(), all);
}

// A rank that resumed another checkpoint, or none, would go unnoticed until something hangs.
void Trainer::check_position() const {
  if (share_.alone()) return;
  double weights = 0;
  for (const torch::Tensor& parameter : model_->parameters()) {
    weights += parameter.detach().sum(torch::kDouble).item<double>();
  }
  check_agreement(*share_.collective(),
                  {{"step", std::to_string(steps_taken())}, {"weights", number_text(weights)}});
}

torch::Tensor Trainer::compute_gradients(int64_t step) {
  const int64_t count = batches_per_step();
  const int64_t first = config_.full_batch ? 0 : step * count;
  Stopwatch watch;
  optimizer_.zero_grad();
  if (graph_ && !time_stages_) {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < count; ++i) batches.push_back(train_batches_.get(first + i));
    const torch::Tensor mean = graph_->run(batches);
    timing_.forward += watch.lap();
    return mean;
  }
  torch::Tensor mean = torch::zeros({}, torch::device(torch::Device(config_.device)).dtype(torch::kDouble));
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<Batch> parts = share_.parts(train_batches_.get(first + i), config_.batch);
    if (i == 0) optimizer_.begin_gradients(count * static_cast<int64_t>(parts.size()));
    timing_.forward += watch.lap();
    for (const Batch& part : parts) mean = mean + compute_gradients(std::span(&part, 1));
    watch.lap();
  }
  return mean;
}

torch::Tensor Trainer::compute_gradients(std::span<const Batch> batches) {
  torch::Tensor mean;
  Stopwatch watch;
  for (const Batch& batch : batches) {
    torch::Tensor loss =
        model_->loss(batch, config_.resolved_label_smoothing()) / static_cast<double>(batches_per_step());
    const int64_t examples = batch.inputs.size(0);
    if (examples < config_.batch) {
      loss = loss * (static_cast<double>(examples) / static_cast<double>(config_.batch));
    }
    mean = mean.defined() ? mean + loss.detach() : loss.detach();
    wait_for_device();
    timing_.forward += watch.lap();
    loss.backward();
    wait_for_device();
    timing_.backward += watch.lap();
  }
  return mean;
}

std::string Trainer::precision() const {
  std::string text = half_ ? "bfloat16" : "float32";
  if (config_.device != "cuda") return text;
  const std::string why = kernels::why_unavailable(torch::Device(torch::kCUDA, 0));
  if (!half_ && config_.precision.empty() && why.empty()) {
    text += config_.smooths_language() ? " for label smoothing" : " for want of bfloat16 kernels";
  }
  if (const std::string part = model_->slow_part(); !part.empty()) text += join(" (slow: ", part, ")");
  if (graph_) return text + ", forward and backward pass as one CUDA graph";
  return why.empty() ? text : join(text, ", without kernels and CUDA graph: ", why);
}

bool Trainer::uses_graph() const {
  // A full batch may be more than the device holds at once.
  return config_.cuda_graph && config_.device == "cuda" && !config_.full_batch && !share_.is_exact() &&
         kernels::why_unavailable(torch::Device(torch::kCUDA, 0)).empty();
}

void Trainer::refuse_batch() {
  graph_.reset();
  optimizer_.zero_grad();
  int64_t fits = 0;
  for (int64_t batch = config_.batch / 2; batch >= 1 && fits == 0; batch /= 2) {
    try {
      // The optimizer will want its own.
      const torch::Tensor scratch =
          torch::empty({optimizer_.options().scratch_bytes},
                       torch::device(torch::Device(config_.device)).dtype(torch::kByte));
      model_->loss(on_device(dataset_->train_batch(0, batch)), config_.resolved_label_smoothing()).backward();
      fits = batch;
    } catch (const c10::OutOfMemoryError&) {
      optimizer_.zero_grad();
    }
  }
  throw InputError(join("the GPU's memory does not hold --batch ", config_.batch, "; ",
                        fits > 0 ? join("--batch ", fits, " fits, --accumulate keeps the step the same")
                                 : std::string("not even --batch 1 fits: take a smaller model or sequence")));
}

void Trainer::wait_for_device() const {
  if (time_stages_ && config_.device == "cuda") torch::cuda::synchronize();
}

void Trainer::take_reference() {
  Stopwatch watch;
  const StepTiming timing = timing_;
  std::vector<torch::Tensor> gradients;
  for (const Layer& layer : optimizer_.layers()) gradients.push_back(layer.parameter.grad());
  std::vector<torch::Tensor> kept;  // another replay of the graph writes where they are
  if (graph_) {
    for (const torch::Tensor& gradient : gradients)
      kept.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  std::vector<torch::Tensor> buffers;  // running statistics: a look ahead must not change them
  for (const torch::Tensor& buffer : model_->buffers()) buffers.push_back(buffer.clone());

  compute_gradients(steps_taken() + 1);
  optimizer_.reduce_gradients();
  recorder_->take_reference();

  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (graph_ && kept[i].defined()) gradients[i].copy_(kept[i]);
    optimizer_.layers()[i].parameter.mutable_grad() = gradients[i];
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) model_->buffers()[i].copy_(buffers[i]);
  timing_ = timing;
  timing_.reference = watch.lap();
}

double Trainer::evaluate() {
  const torch::NoGradGuard no_grad;
  model_->eval();
  share_.copy_from_first(model_->buffers());
  double sum = 0;
  double count = 0;
  for (const Batch& batch : dataset_->validation(config_.batch)) {
    const Batch mine = share_.of(batch);
    const auto examples = static_cast<double>(mine.inputs.size(0));
    if (examples == 0) continue;
    sum += model_->loss(on_device(mine), 0).item<double>() * examples;
    count += examples;
  }
  const std::vector<double> all = share_.sum({sum, count});
  return all[0] / all[1];
}

double Trainer::accuracy() {
  const torch::NoGradGuard no_grad;
  model_->eval();
  share_.copy_from_first(model_->buffers());
  double right = 0;
  double count = 0;
  for (const Batch& batch : dataset_->validation(config_.batch)) {
    const Batch moved = on_device(share_.of(batch));
    if (moved.targets.numel() == 0) continue;
    right += model_->forward(moved.inputs).argmax(-1).eq(moved.targets).sum().item<double>();
    count += static_cast<double>(moved.targets.numel());
  }
  const std::vector<double> all = share_.sum({right, count});
  return all[0] / all[1];
}

TrainSummary Trainer::run(RunDirectory* directory, Progress* progress, const std::atomic<bool>& stop) {
  const int64_t start = steps_taken();
  check_position();
  if (directory != nullptr) prepare(*directory);
  const double before = directory == nullptr ? 0 : directory->rewind(start);
  double seconds = 0;
  TrainSummary summary;
  std::optional<double> val;
  int64_t saved = start;
  const auto save = [&] {
    Checkpoint now = checkpoint();
    saved = steps_taken();
    if (directory == nullptr) return;
    now.text["config"] = directory->config();
    save_checkpoint(directory->checkpoints(), now);
  };
  const auto anybody = [&] {  // wants to stop; has samples
    return share_.sum({stop ? 1.0 : 0.0, recorder_ && recorder_->has_samples() ? 1.0 : 0.0});
  };
  for (bool stopped = anybody()[0] > 0; !stopped && steps_taken() < config_.steps;) {
    Stopwatch watch;
    summary.loss = step();
    const std::vector<double> said = anybody();
    stopped = said[0] > 0;
    if (said[1] > 0) write_samples();
    const int64_t taken = steps_taken();
    const bool evaluated = taken % config_.eval_every == 0 || taken == config_.steps;
    seconds += watch.lap();
    const double speed = static_cast<double>((taken - start) * tokens_per_step()) / seconds;
    if (evaluated) val = evaluate();
    seconds += watch.lap();
    const LogRow row = log_row(summary.loss, evaluated ? val : std::nullopt, before + seconds);
    if (directory != nullptr) directory->append(row);
    if (progress != nullptr) {
      progress->show({taken, config_.steps, summary.loss, val, speed, row.optimizer,
                      estimate_left(seconds, taken - start, config_.steps - taken), evaluated});
    }
    if (taken % config_.save_every == 0 || taken == config_.steps) save();
  }
  if (saved != steps_taken()) save();
  if (progress != nullptr) progress->finish();
  summary.steps = steps_taken();
  summary.seconds = before + seconds;
  summary.interrupted = steps_taken() < config_.steps;
  summary.val = val && !summary.interrupted ? *val : evaluate();
  if (config_.model == "cifar-cnn") summary.accuracy = accuracy();
  return summary;
}

void Trainer::prepare(const RunDirectory& directory) {
  if (recorder_ && !samples_) samples_.emplace(directory.smoothness(), recorder_->measured(), steps_taken());
}

void Trainer::write_samples() {
  const Trajectory trajectory = gather_samples(*share_.collective(), recorder_->take_samples());
  if (!samples_) return;
  for (const LayerTrajectory& layer : trajectory.layers) {
    for (const Sample& sample : layer.samples) samples_->append(layer, sample);
  }
  samples_->flush();
}

Checkpoint Trainer::checkpoint() const {
  share_.copy_from_first(model_->buffers());
  Checkpoint checkpoint;
  checkpoint.step = steps_taken();
  checkpoint.model = named_tensors(*model_);
  checkpoint.optimizer = optimizer_.state();
  checkpoint.text = identity();
  checkpoint.text["data"] = dataset_->describe();
  return checkpoint;
}

void Trainer::resume(const Checkpoint& checkpoint) {
  check_same_run(identity(), checkpoint.text);
  optimizer_.load_state(checkpoint.optimizer);
  const torch::NoGradGuard no_grad;
  restore_tensors(checkpoint.model, named_tensors(*model_));
}

int64_t Trainer::tokens_per_step() const {
  return batches_per_step() * config_.batch * dataset_->tokens_per_example();
}

Batch Trainer::on_device(Batch batch) const {
  const torch::Device device(config_.device);
  return {batch.inputs.to(device), batch.targets.to(device)};
}

int64_t Trainer::batches_per_step() const {
  return config_.full_batch ? dataset_->train_examples() / config_.batch : config_.accumulate;
}

RunIdentity Trainer::identity() const {
  const OptimizerOptions& options = optimizer_.options();
  return {{"model", config_.model},
          {"geometry", optimizer_.routing_report()},
          {"momentum", options.momentum.value_or(config_.geometry().momentum()).name()},
          {"orthogonalizer", options.orthogonalizer},
          {"batch", join(config_.batch, " x ", batches_per_step())},
          {"seed", std::to_string(config_.seed)}};
}

LogRow Trainer::log_row(double loss, std::optional<double> val, double seconds) const {
  LogRow row{
      steps_taken(), steps_taken() * tokens_per_step(), loss, val, seconds, mean_radii(optimizer_), {}};
  // A GPU runs ahead of this process: its share is not known here.
  if (config_.device == "cpu") row.optimizer = timing_.optimizer / timing_.total();
  return row;
}

}  // namespace gluon::lab
