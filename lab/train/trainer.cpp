#include "lab/train/trainer.h"

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/version.h"
#include "lab/models/nanogpt.h"
#include "lab/models/zoo.h"
#include "lab/train/config_fields.h"

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

// With single spaces: the columns of a routing report may have other widths.
std::string collapsed(std::string text) {
  const auto is_gap = [](char before, char after) { return before == ' ' && after == ' '; };
  text.erase(std::unique(text.begin(), text.end(), is_gap), text.end());
  return text;
}

// The first line in which two texts differ; empty where one has ended.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string left_line, right_line;
  do {
    if (!std::getline(left, left_line)) left_line.clear();
    if (!std::getline(right, right_line)) right_line.clear();
  } while (left_line == right_line && (left || right));
  return {left_line, right_line};
}

}  // namespace

RunIdentity config_identity(const TrainConfig& config) {
  RunIdentity identity{{"label-smoothing", number_text(config.resolved_label_smoothing())}};
  if (is_language_model(config.model)) {
    const NanoGptOptions standard = nanogpt_options(config.model);
    identity["heads"] = std::to_string(config.heads > 0 ? config.heads : standard.heads);
    identity["seq"] = std::to_string(config.seq > 0 ? config.seq : standard.context);
  }
  for (const ConfigField& field : config_fields()) {
    if (std::string_view(field.identity) == field.name) identity.emplace(field.name, value_text(config, field));
  }
  return identity;
}

void check_same_run(const RunIdentity& expected, const RunIdentity& saved) {
  for (const auto& [part, text] : expected) {
    const auto found = saved.find(part);
    GLUON_CHECK(found != saved.end(), "resume: the checkpoint does not name its ", part);
    const auto [saved_line, line] = first_difference(collapsed(found->second), collapsed(text));
    GLUON_CHECK(saved_line == line, "resume: the checkpoint belongs to another run: its ", part, " is '", saved_line,
                "', this run has '", line, "'");
  }
}

Trainer::Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
                 CollectivePtr collective)
    : config_((config.validate(), check_device(config), std::move(config))),
      model_((model->to(torch::Device(config_.device)), std::move(model))),
      dataset_(std::move(dataset)),
      share_(collective, config_.parts_for(collective ? collective->size() : 0)),
      optimizer_(model_->layers(), config_.geometry(), optimizer_options(config_, share_)) {
  check_ranks();
  if (config_.deterministic) make_deterministic();
  gradients_ = std::make_unique<GradientComputer>(config_, model_, dataset_, share_, optimizer_);
  if (config_.smoothness_every > 0) add_recorder();
}

void Trainer::add_recorder() {
  recorder_ = std::make_shared<Recorder>(
      optimizer_.layers(), config_.measuring_geometry(),
      RecorderOptions{.every = config_.smoothness_every,
                      .estimator = config_.estimator(),
                      .dual = config_.smoothness_dual,
                      .measures = [this](std::size_t layer) { return optimizer_.owns(layer); }});
  optimizer_.add_observer(recorder_);
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
  torch::Tensor loss;
  Stopwatch watch;
  try {
    loss = gradients_->compute(steps_taken(), timing_);
    watch.lap();
    optimizer_.reduce_gradients();
    timing_.backward += watch.lap();
    if (recorder_ && recorder_->needs_reference(steps_taken())) {
      loss = loss.clone();  // valid beyond the next gradients
      gradients_->look_ahead(steps_taken() + 1, [this] { recorder_->take_reference(); });
      timing_.reference = watch.lap();
    }
  } catch (const c10::OutOfMemoryError&) {
    gradients_->reject_batch();
  }
  watch.lap();
  optimizer_.step();
  gradients_->finish_stage();
  timing_.optimizer = watch.lap();
  const double value = sum(*share_.collective(), {loss.item<double>()})[0];
  optimizer_.wait();
  return value;
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
  const int64_t start = steps_taken();
  const double before = writer == nullptr ? 0 : writer->rewind(start);
  double seconds = 0;  // in this process
  int64_t saved = start;
  TrainSummary summary;
  std::optional<double> val;
  Poll poll = poll_ranks(stop);
  if (writer != nullptr && !poll.stop) writer->try_save(checkpoint_text());
  while (!poll.stop && steps_taken() < config_.steps) {
    Stopwatch watch;
    summary.loss = step();
    poll = poll_ranks(stop);
    if (poll.has_samples) write_samples(writer);
    seconds += watch.lap();
    const auto taken = static_cast<double>(steps_taken() - start);
    const double speed = taken * static_cast<double>(tokens_per_step()) / seconds;
    val.reset();
    if (is_due(config_.eval_every)) val = evaluate();
    seconds += watch.lap();
    const double left = seconds / taken * static_cast<double>(config_.steps - steps_taken());
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

void Trainer::save(RunWriter* writer) const {
  Checkpoint now = checkpoint();
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
  return text;
}

void Trainer::resume(const Checkpoint& checkpoint) {
  const RunIdentity own = identity();
  RunIdentity saved = checkpoint.text;
  const bool complete = std::ranges::all_of(own, [&](const auto& part) { return saved.contains(part.first); });
  if (!complete && saved.contains("config")) {  // an older program named fewer parts
    TrainConfig config = config_;
    parse_config_toml(saved.at("config"), "resume: the checkpoint's config", config);
    saved.merge(config_identity(config));
  }
  check_same_run(own, saved);
  optimizer_.load_state(checkpoint.optimizer);
  const torch::NoGradGuard no_grad;
  restore_tensors(checkpoint.model, named_tensors(*model_));
}

int64_t Trainer::tokens_per_step() const {
  return batches_per_step(config_, *dataset_) * config_.batch * dataset_->tokens_per_example();
}

RunIdentity Trainer::identity() const {
  RunIdentity identity{{"geometry", optimizer_.routing_report()},
                       {"momentum", optimizer_.momentum().name()},
                       {"orthogonalizer", optimizer_.options().orthogonalizer},
                       {"batch", join(config_.batch, " x ", batches_per_step(config_, *dataset_))}};
  identity.merge(config_identity(config_));  // unless derived above
  return identity;
}

LogRow Trainer::log_row(double loss, std::optional<double> val, double seconds) const {
  LogRow row{steps_taken(), steps_taken() * tokens_per_step(), loss, val, seconds, mean_radii(optimizer_), {}};
  // A GPU runs ahead of this process: the optimizer's share is not known here.
  if (config_.device == "cpu") row.optimizer = timing_.optimizer / timing_.total();
  return row;
}

}  // namespace gluon::lab
