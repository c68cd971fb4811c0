#include "lab/train/trainer.h"

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/update/initialize.h"
#include "gluon/version.h"
#include "lab/train/error_text.h"
#include "lab/train/number_copy.h"

namespace gluon::lab {
namespace {

void check_device(const TrainConfig& config) {
  if (!config.on_gpu()) return;
  GLUON_CHECK(torch::cuda::is_available(), "--device ", config.device,
              ": no CUDA device is available, or this LibTorch was built without CUDA");
  const auto count = static_cast<int64_t>(torch::cuda::device_count());
  GLUON_CHECK(torch::Device(config.device).index() < count, "--device ", config.device,
              ": the GPUs that this process sees are cuda:0 to cuda:", count - 1);
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

// For the whole process.
void make_deterministic() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // required by cuBLAS
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setBenchmarkCuDNN(false);
}

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : model.named_parameters()) tensors[entry.key()] = entry.value();
  for (const auto& entry : model.named_buffers()) tensors[entry.key()] = entry.value();
  return tensors;
}

// The mean radius of the last step over the layers of each role, for the log. All ranks call it together.
std::vector<std::pair<std::string, double>> mean_radii(const Optimizer& optimizer) {
  std::map<std::string, Role> roles;
  for (const Layer& layer : optimizer.layers()) roles[layer.name] = layer.role;
  std::map<std::string, std::pair<double, int64_t>> sums;
  for (const LayerRadius& entry : optimizer.effective_radii()) {
    // "experts[3]" belongs to the layer "experts".
    const auto role = roles.find(entry.name.substr(0, entry.name.find('[')));
    if (role == roles.end()) continue;
    auto& [sum, count] = sums[std::string(role_name(role->second))];
    sum += entry.radius;
    ++count;
  }
  std::vector<std::pair<std::string, double>> means;
  for (const auto& [role, sum] : sums) means.emplace_back(role, sum.first / static_cast<double>(sum.second));
  return means;
}

constexpr const char* kSkipped = "skipped";  // in the text of a checkpoint, where they are not 0
constexpr const char* kRollbacks = "rollbacks";

int64_t count_in(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.text.find(name);
  if (found == checkpoint.text.end()) return 0;
  const int64_t count = parse_integer(found->second, "resume: the checkpoint's " + name);
  GLUON_CHECK(count >= 0, "resume: the checkpoint's ", name, " must be >= 0, got ", count);
  return count;
}

}  // namespace

Trainer::Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
                 CollectivePtr collective)
    : config_((config.validate(), check_device(config), std::move(config))),
      model_((model->to(torch::Device(config_.device)), std::move(model))),
      dataset_(std::move(dataset)),
      share_(collective, config_.parts_for(collective ? collective->size() : 0)),
      optimizer_(model_->layers(), config_.geometry(), optimizer_options(config_, share_)) {
  check_ranks();
  start_on_spheres(optimizer_.layers(), config_.geometry(), config_.seed);  // unless a checkpoint is loaded
  if (config_.deterministic) make_deterministic();
  gradients_ = std::make_unique<GradientComputer>(config_, model_, dataset_, share_, optimizer_);
  if (const double tau = config_.resolved_qk_clip(); tau > 0) qk_clipper_.emplace(*model_, tau, share_.collective());
  if (config_.smoothness_every > 0) add_recorder();
}

void Trainer::add_recorder() {
  recorder_ = std::make_shared<Recorder>(
      optimizer_.layers(), config_.measuring_geometry(),
      RecorderOptions{.every = config_.smoothness_every,
                      .start = config_.smoothness_start,
                      .estimator = config_.estimator(),
                      .dual = config_.smoothness_dual,
                      .measures = [this](std::size_t layer) { return optimizer_.owns(layer); }});
  recording_ = std::make_shared<TimedObserver>(recorder_);
  optimizer_.add_observer(recording_);
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

// Ranks that resumed different checkpoints would otherwise train on until something hangs.
void Trainer::check_position() const {
  if (share_.alone()) return;
  double weights = 0;
  for (const torch::Tensor& parameter : model_->parameters()) {
    weights += parameter.detach().sum(torch::kDouble).item<double>();
  }
  check_agreement(*share_.collective(), {{"step", std::to_string(steps_taken())}, {"weights", number_text(weights)}});
}

double Trainer::step() {
  model_->train();
  timing_ = {};
  std::optional<NumberCopy> loss;  // it arrives while the optimizer's step still runs
  Stopwatch watch;
  if (qk_clipper_) qk_clipper_->begin_step();
  try {
    loss.emplace(gradients_->compute(position(), timing_));
    watch.lap();
    optimizer_.reduce_gradients();
    if (qk_clipper_) qk_clipper_->take_logits();  // not before: gradients are on their way to their owners
    timing_.backward += watch.lap();
    if (recorder_ && recorder_->needs_reference(steps_taken())) {
      gradients_->look_ahead(position() + 1, [this] { recorder_->take_reference(); });
      timing_.smoothness = watch.lap();
    }
  } catch (const c10::OutOfMemoryError&) {
    gradients_->reject_batch();
  }
  watch.lap();
  optimizer_.step();
  gradients_->finish_stage();
  const double recording = recording_ ? recording_->take_seconds() : 0;
  timing_.optimizer = watch.lap() - recording;
  timing_.smoothness += recording;
  const double value = sum(*share_.collective(), {loss->value()})[0];
  optimizer_.wait();
  if (qk_clipper_) qk_clipper_->clip();  // only after a step that moved the weights
  return value;
}

std::optional<double> Trainer::try_step(RunWriter* writer) {
  if (config_.on_nan == "error") return step();
  std::vector<torch::Tensor> buffers;  // running statistics
  for (const torch::Tensor& buffer : model_->buffers()) buffers.push_back(buffer.clone());
  try {
    const double loss = step();
    in_a_row_ = 0;
    return loss;
  } catch (const NonFiniteGradient& error) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers.size(); ++i) model_->buffers()[i].copy_(buffers[i]);
    if (recorder_) recorder_->abandon_pair();
    if (config_.on_nan == "skip") {
      skip_batch(error, writer);
    } else {
      go_back(error, writer);
    }
    return std::nullopt;
  }
}

void Trainer::skip_batch(const NonFiniteGradient& error, RunWriter* writer) {
  if (in_a_row_ == config_.nan_limit) {
    throw NonFiniteGradient(join(error.what(), ", after ", in_a_row_, " batches left out in a row (--nan-limit)"));
  }
  ++in_a_row_;
  ++skipped_;
  const std::string sentence = join(error.what(), "; the batch is left out, ", in_a_row_, " in a row");
  if (writer != nullptr) writer->append_incident(sentence, skipped_, rollbacks_);
}

void Trainer::go_back(const NonFiniteGradient& error, RunWriter* writer) {
  const int64_t rollbacks = rollbacks_ + 1;
  if (rollbacks > config_.nan_limit) {
    throw NonFiniteGradient(join(error.what(), ", after ", rollbacks_, " rollbacks (--nan-limit)"));
  }
  const bool doomed = steps_taken() == last_checkpoint_.step && checkpoint_before_;
  if (doomed) last_checkpoint_ = *std::exchange(checkpoint_before_, std::nullopt);
  resume(last_checkpoint_);
  set_rollbacks(rollbacks);
  if (recorder_) (void)recorder_->take_samples();
  if (doomed) {  // a resumed run must not begin there; all ranks make a checkpoint together
    Checkpoint before = checkpoint();
    if (writer != nullptr) writer->save(std::move(before));
  }
  if (writer == nullptr) return;
  writer->rewind(steps_taken());
  writer->append_incident(join(error.what(), "; back to step ", steps_taken(), " with all radii times ",
                               number_text(optimizer_.radius_multiplier())),
                          skipped_, rollbacks_);
}

void Trainer::set_rollbacks(int64_t rollbacks) {
  rollbacks_ = rollbacks;
  optimizer_.set_radius_multiplier(std::ldexp(1.0, -static_cast<int>(std::min<int64_t>(rollbacks, 1000))));
}

// Copies, as the parameters move on.
void Trainer::keep_checkpoint(Checkpoint checkpoint) {
  for (auto& [name, tensor] : checkpoint.model) tensor = tensor.detach().to(torch::kCPU, /*non_blocking=*/false, true);
  if (!last_checkpoint_.model.empty()) checkpoint_before_ = std::move(last_checkpoint_);
  last_checkpoint_ = std::move(checkpoint);
}

double Trainer::evaluate() {
  return mean_over_validation([this](const Batch& mine) {
    const auto examples = static_cast<double>(mine.inputs.size(0));
    return std::pair(model_->loss(mine, 0).item<double>() * examples, examples);
  });
}

double Trainer::accuracy() {
  return mean_over_validation([this](const Batch& mine) {
    const torch::Tensor hits = model_->forward(mine.inputs).argmax(-1).eq(mine.targets);
    return std::pair(hits.sum().item<double>(), static_cast<double>(hits.numel()));
  });
}

double Trainer::mean_over_validation(const Measure& measure) const {
  const torch::NoGradGuard no_grad;
  model_->eval();
  share_.copy_from_first(model_->buffers());
  const torch::Device device = model_->parameters().front().device();
  std::vector<double> total(2);
  for (const Batch& whole : dataset_->validation(config_.batch)) {
    const Batch mine = share_.of(whole);
    if (mine.inputs.size(0) == 0) continue;
    const auto [value, count] = measure({mine.inputs.to(device), mine.targets.to(device)});
    total[0] += value;
    total[1] += count;
  }
  total = sum(*share_.collective(), total);
  return total[0] / total[1];
}

TrainSummary Trainer::run(RunWriter* writer, const std::atomic<bool>& stop) {
  check_position();
  if (writer == nullptr) return take_steps(nullptr, stop);
  writer->begin(steps_taken(), config_.steps);
  try {
    const TrainSummary summary = take_steps(writer, stop);
    writer->end(summary.interrupted ? RunState::kInterrupted : RunState::kFinished, summary.steps, config_.steps);
    return summary;
  } catch (const std::exception& error) {
    writer->fail(error_text(error), steps_taken(), config_.steps);
    throw;
  }
}

TrainSummary Trainer::take_steps(RunWriter* writer, const std::atomic<bool>& stop) {
  const int64_t start = steps_taken();
  const double before = writer == nullptr ? 0 : writer->rewind(start);
  double seconds = 0;  // in this process
  int64_t saved = start, taken = 0;
  TrainSummary summary;
  std::optional<double> val;
  Poll poll = poll_ranks(stop);
  if (writer != nullptr && !poll.stop) writer->try_save(checkpoint_text());
  if (writer != nullptr && position() + rollbacks_ > start) writer->set_incidents(skipped_, rollbacks_);
  if (config_.on_nan == "rollback") keep_checkpoint(checkpoint());
  while (!poll.stop && steps_taken() < config_.steps) {
    Stopwatch watch;
    const std::optional<double> loss = try_step(writer);
    poll = poll_ranks(stop);
    seconds += watch.lap();
    if (!loss) continue;
    ++taken;
    summary.loss = *loss;
    if (poll.has_samples) write_samples(writer);
    seconds += watch.lap();
    const double speed = static_cast<double>(taken * tokens_per_step()) / seconds;
    val.reset();
    if (is_due(config_.eval_every)) val = evaluate();
    seconds += watch.lap();
    const double left = seconds / static_cast<double>(taken) * static_cast<double>(config_.steps - steps_taken());
    const LogRow row = log_row(summary.loss, val, before + seconds);
    if (writer != nullptr) writer->append(row, {config_.steps, speed, left});
    if (!is_due(config_.save_every)) continue;
    save(writer);
    saved = steps_taken();
  }
  if (saved != steps_taken()) save(writer);
  if (writer != nullptr) writer->finish();
  summary.steps = steps_taken();
  summary.seconds = before + seconds;
  summary.interrupted = steps_taken() < config_.steps;
  summary.val = val ? *val : evaluate();
  // Before its last step a run ends at the gradient; nothing looks at the last weights but this.
  if (!std::isfinite(summary.val)) {
    throw NonFiniteGradient(
        join("the run diverged: after step ", summary.steps, " its validation loss is ", summary.val));
  }
  if (config_.model == "cifar-cnn") summary.accuracy = accuracy();
  return summary;
}

Trainer::Poll Trainer::poll_ranks(const std::atomic<bool>& stop) const {
  const bool has_samples = recorder_ && recorder_->has_samples();
  const std::vector<double> ranks = sum(*share_.collective(), {stop ? 1.0 : 0.0, has_samples ? 1.0 : 0.0});
  return {ranks[0] > 0, ranks[1] > 0};
}

void Trainer::write_samples(RunWriter* writer) {
  const Trajectory samples = gather_samples(*share_.collective(), recorder_->take_samples());
  if (writer != nullptr) writer->append(samples);
}

void Trainer::save(RunWriter* writer) {
  Checkpoint now = checkpoint();
  if (config_.on_nan == "rollback") keep_checkpoint(now);
  if (writer != nullptr) writer->save(std::move(now));
}

bool Trainer::is_due(int64_t every) const { return steps_taken() % every == 0 || steps_taken() == config_.steps; }

Checkpoint Trainer::checkpoint() const {
  share_.copy_from_first(model_->buffers());
  Checkpoint checkpoint;
  checkpoint.step = steps_taken();
  checkpoint.model = named_tensors(*model_);
  checkpoint.optimizer = optimizer_.state();
  checkpoint.text = checkpoint_text();
  return checkpoint;
}

std::map<std::string, std::string> Trainer::checkpoint_text() const {
  std::map<std::string, std::string> text = identity();
  text["data"] = dataset_->describe();
  if (skipped_ > 0) text[kSkipped] = std::to_string(skipped_);
  if (rollbacks_ > 0) text[kRollbacks] = std::to_string(rollbacks_);
  return text;
}

void Trainer::resume(const Checkpoint& checkpoint) {
  check_same_run(identity(), checkpoint.text);
  const int64_t skipped = count_in(checkpoint, kSkipped), rollbacks = count_in(checkpoint, kRollbacks);
  optimizer_.load_state(checkpoint.optimizer);
  skipped_ = skipped;
  set_rollbacks(rollbacks);
  const torch::NoGradGuard no_grad;
  restore_tensors(checkpoint.model, named_tensors(*model_));
}

int64_t Trainer::tokens_per_step() const {
  return batches_per_step(config_, *dataset_) * config_.batch * dataset_->tokens_per_example();
}

RunIdentity Trainer::identity() const {
  const std::string routing = config_.geometry().routing_report(optimizer_.layers());
  RunIdentity identity{{"geometry", routing},
                       {"momentum", optimizer_.momentum().name()},
                       {"orthogonalizer", optimizer_.options().orthogonalizer},
                       {"batch", join(config_.batch, " x ", batches_per_step(config_, *dataset_))}};
  TrainConfig longer = config_;
  ++longer.steps;
  if (longer.geometry().routing_report(optimizer_.layers()) != routing) {
    identity[kHorizon] = std::to_string(config_.steps);
  }
  identity.merge(config_identity(config_));  // unless derived above
  return identity;
}

LogRow Trainer::log_row(double loss, std::optional<double> val, double seconds) const {
  LogRow row{steps_taken(), steps_taken() * tokens_per_step(), loss, val, seconds, mean_radii(optimizer_), {}};
  // A GPU runs ahead of this process: the optimizer's share is not known here.
  if (!config_.on_gpu()) row.optimizer = timing_.optimizer_share();
  return row;
}

}  // namespace gluon::lab
