// Trainer: the training loop, resumable bit for bit.
//
//   GradientComputer -> Optimizer::step() -> evaluation, log row, checkpoint -> RunWriter
//
// Everything a step depends on is in the checkpoint: parameters and buffers, the optimizer's state, the seed and the
// step, which is the position in the data. Randomness is a function of seed and step (lab/data/permutation.h); no
// generator has a state of its own, and nothing depends on the clock.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/update/optimizer.h"
#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/config.h"
#include "lab/train/gradient_computer.h"
#include "lab/train/rank_share.h"
#include "lab/train/run_directory.h"
#include "lab/train/run_writer.h"
#include "lab/train/step_timing.h"

namespace gluon::lab {

struct TrainSummary {
  int64_t steps = 0;                 // taken in total
  double loss = 0;                   // of the last step
  double val = 0;                    // after the last step
  std::optional<double> accuracy{};  // of image models, after the last step
  double seconds = 0;
  bool interrupted = false;
};

/// What must not change when a run resumes from a checkpoint, as text by part: single fields of the config, such as
/// model and seed; geometry, momentum, orthogonalizer and batch, which follow from several fields and the model. The
/// table of config fields (config_fields.h) says which part each field belongs to.
using RunIdentity = std::map<std::string, std::string>;

/// The parts that follow from the config alone, defaults resolved.
RunIdentity config_identity(const TrainConfig& config);

/// Throws InputError, naming the part and the first line that differs, unless `saved`, the text of a checkpoint, agrees
/// with all of `expected`.
void check_same_run(const RunIdentity& expected, const RunIdentity& saved);

class Trainer {
 public:
  /// With several ranks in `collective`, each rank has a trainer and its share of every batch, and all ranks call the
  /// same functions together. Throws InputError when config, model and data do not fit each other, or differ between
  /// ranks.
  Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
          CollectivePtr collective = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Takes one step; returns the mean training loss before it.
  double step();

  /// Mean loss over the validation examples, and the share of them whose largest logit is the target, with the model in
  /// evaluation mode and the buffers of the first rank.
  double evaluate();
  double accuracy();

  /// Takes the remaining steps of the config, evaluating and saving as it says; ends early after a step in which
  /// `stop` is true on any rank. The first rank has a writer, the others have none (null).
  TrainSummary run(RunWriter* writer, const std::atomic<bool>& stop);

  /// What resumes this run, and its inverse. resume() throws InputError, with nothing changed, when the checkpoint has
  /// another identity. Steps, schedule and data may differ: they come from the config.
  Checkpoint checkpoint() const;
  void resume(const Checkpoint& checkpoint);

  /// See GradientComputer::time_stages().
  void time_stages() { gradients_->time_stages(); }

  std::string precision() const { return gradients_->precision(); }
  int64_t steps_taken() const { return optimizer_.steps_taken(); }
  int64_t tokens_per_step() const;
  const StepTiming& last_timing() const { return timing_; }
  const Optimizer& optimizer() const { return optimizer_; }
  Recorder* recorder() const { return recorder_.get(); }  // null: the config records no smoothness

 private:
  // What any rank has to say after a step.
  struct Poll {
    bool stop;
    bool has_samples;
  };

  // Sum and count of something over the examples of a batch.
  using Measure = std::function<std::pair<double, double>(const Batch&)>;

  double mean_over_validation(const Measure& measure) const;
  void check_ranks() const;
  void check_position() const;
  void add_recorder();
  Poll poll_ranks(const std::atomic<bool>& stop) const;
  void write_samples(RunWriter* writer);
  void save(RunWriter* writer) const;
  bool is_due(int64_t every) const;  // or this was the last step
  RunIdentity identity() const;
  std::map<std::string, std::string> checkpoint_text() const;
  LogRow log_row(double loss, std::optional<double> val, double seconds) const;

  const TrainConfig config_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Dataset> dataset_;
  RankShare share_;
  Optimizer optimizer_;
  std::unique_ptr<GradientComputer> gradients_;
  std::shared_ptr<Recorder> recorder_;
  StepTiming timing_;
};

}  // namespace gluon::lab
