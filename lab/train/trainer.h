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
#include "lab/train/qk_clipper.h"
#include "lab/train/rank_share.h"
#include "lab/train/run_directory.h"
#include "lab/train/run_identity.h"
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

class Trainer {
 public:
  /// With several ranks in `collective`, each rank has a trainer and its share of every batch, and all ranks call the
  /// same functions together. Throws InputError when config, model and data do not fit each other, or differ between
  /// ranks.
  Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
          CollectivePtr collective = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Takes one step; returns the mean training loss before it. Throws NonFiniteGradient, with nothing changed but
  /// buffers, when a gradient holds NaN or Inf.
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

  /// For --on-nan rollback: the checkpoint before the one that resume() restored.
  void set_checkpoint_before(Checkpoint checkpoint) { checkpoint_before_ = std::move(checkpoint); }

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

  /// Takes a step; where step() throws NonFiniteGradient, does what --on-nan says and returns nothing:
  ///
  ///   skip       the batch is left out: the next step takes the next one
  ///   rollback   the run goes back to its last checkpoint (or start), with all radii halved from there on
  ///
  /// Throws it on, saying so, after --nan-limit of them. Counts are in the checkpoints: a resumed run does the same.
  std::optional<double> try_step(RunWriter* writer);
  void skip_batch(const NonFiniteGradient& error, RunWriter* writer);
  void go_back(const NonFiniteGradient& error, RunWriter* writer);
  int64_t position() const { return steps_taken() + skipped_; }  // in the training batches
  void set_rollbacks(int64_t rollbacks);
  void keep_checkpoint(Checkpoint checkpoint);

  TrainSummary take_steps(RunWriter* writer, const std::atomic<bool>& stop);
  double mean_over_validation(const Measure& measure) const;
  void check_ranks() const;
  void check_position() const;
  void add_recorder();
  Poll poll_ranks(const std::atomic<bool>& stop) const;
  void write_samples(RunWriter* writer);
  void save(RunWriter* writer);
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
  std::optional<QkClipper> qk_clipper_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<TimedObserver> recording_;  // the recorder's time
  StepTiming timing_;
  int64_t skipped_ = 0;    // batches left out
  int64_t in_a_row_ = 0;   // of those, since the last step
  int64_t rollbacks_ = 0;  // each halved the radii
  // In memory, for rollbacks; on every rank. The one before serves when the last one's own gradient is not finite.
  Checkpoint last_checkpoint_;
  std::optional<Checkpoint> checkpoint_before_;
};

}  // namespace gluon::lab
