// Trainer: a model, a dataset and an optimizer, one step at a time, resumable bit for bit.
//
//   step k:  batches k A .. k A + A - 1  ->  mean loss  ->  gradients  ->  Optimizer::step()      (A = accumulate)
//
// Everything a step depends on is in the checkpoint: parameters and buffers, the optimizer's state, the seed and the
// step, which is the position in the data. Randomness is a function of the last two (lab/data/permutation.h); no
// generator has a state of its own, and nothing depends on the clock.

#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory_csv.h"
#include "gluon/update/optimizer.h"
#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/config.h"
#include "lab/train/gradient_graph.h"
#include "lab/train/prefetch.h"
#include "lab/train/progress.h"
#include "lab/train/rank_share.h"
#include "lab/train/run_directory.h"
#include "lab/train/run_identity.h"

namespace gluon::lab {

struct StepTiming {
  double forward = 0;    // seconds, data included
  double backward = 0;   // until the gradients of all ranks are with their owners
  double optimizer = 0;  // until the parameters are with all ranks
  double reference = 0;  // the evaluation that recording in same_batch mode adds

  double total() const { return forward + backward + optimizer + reference; }
};

struct TrainSummary {
  int64_t steps = 0;                 // taken in all
  double loss = 0;                   // of the last step
  double val = 0;                    // after the last step
  std::optional<double> accuracy{};  // of image models, then
  double seconds = 0;
  bool interrupted = false;
};

class Trainer {
 public:
  /// With several ranks in `collective`, each with a trainer of its own, a batch is shared by all of them, and they
  /// call the same functions together. Throws InputError when config, model and data do not fit each other, or other
  /// ranks'.
  Trainer(TrainConfig config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
          CollectivePtr collective = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One step; returns the mean training loss before it.
  double step();

  /// Mean loss over the validation examples, the model in evaluation mode.
  double evaluate();

  /// Share of validation examples whose largest logit is the target; all ranks together, as in all of these.
  double accuracy();

  /// Opens what run() will write into the directory. Throws InputError, with nothing changed there, when the samples
  /// of the run so far were measured in another way.
  void prepare(const RunDirectory& directory);

  /// Steps to the end of the config, logging, saving and showing; stops after the step in which `stop` turned true on
  /// any rank. Only the first rank has a directory and shows progress; both are null on the others.
  TrainSummary run(RunDirectory* directory, Progress* progress, const std::atomic<bool>& stop);

  /// What resumes this run, and its inverse. resume() throws InputError, with nothing changed, when the checkpoint
  /// was made with another model, geometry (norms and radii), momentum, batch or seed. Steps, schedule and data may
  /// differ: they are the config's.
  Checkpoint checkpoint() const;
  void resume(const Checkpoint& checkpoint);

  /// Waits for the device after each stage from now on, so that last_timing() tells them apart on a GPU, too; without a
  /// CUDA graph, which has no stages.
  void time_stages(bool on) { time_stages_ = on; }

  /// float32 or bfloat16: what losses are computed in, and how.
  std::string precision() const;

  int64_t steps_taken() const { return optimizer_.steps_taken(); }
  int64_t tokens_per_step() const;
  const StepTiming& last_timing() const { return timing_; }
  const Optimizer& optimizer() const { return optimizer_; }
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }

 private:
  // Of the batches of that step, at the parameters as they are; the mean loss, still on the device.
  torch::Tensor compute_gradients(int64_t step);
  // The same by its batches, one after another; with a CUDA graph through `graph_`.
  torch::Tensor compute_gradients(std::span<const Batch> batches);
  void check_ranks() const;
  void check_position() const;
  [[noreturn]] void refuse_batch();  // it did not fit into the GPU's memory
  void wait_for_device() const;
  void take_reference();  // gives the recorder the next step's gradients; the run does not notice
  void write_samples();
  Batch on_device(Batch batch) const;
  bool uses_graph() const;
  int64_t batches_per_step() const;
  RunIdentity identity() const;  // what must agree between a checkpoint, other ranks and this run
  LogRow log_row(double loss, std::optional<double> val, double seconds) const;

  TrainConfig config_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Dataset> dataset_;
  RankShare share_;
  Optimizer optimizer_;
  std::shared_ptr<Recorder> recorder_;  // none unless the config asks for one
  std::optional<TrajectoryCsvWriter> samples_;
  Prefetcher train_batches_;
  std::optional<GradientGraph> graph_;
  bool half_ = false;
  bool time_stages_ = false;
  StepTiming timing_;
};

}  // namespace gluon::lab
