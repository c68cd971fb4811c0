// GradientComputer: the mean loss of a training step and its gradients.
//
//   step k:  batches k A .. k A + A - 1  ->  mean loss  ->  gradients in the layers                (A = accumulate)
//
// It decides where and how losses are computed: the device, the precision, one CUDA graph for all passes, the batches
// that make up a step and this rank's share of each.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gluon/update/optimizer.h"
#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/config.h"
#include "lab/train/cuda_graph.h"
#include "lab/train/prefetch.h"
#include "lab/train/rank_share.h"
#include "lab/train/step_timing.h"

namespace gluon::lab {

/// Batches that make up one step of the config.
int64_t batches_per_step(const TrainConfig& config, const Dataset& dataset);

/// The forward and backward passes of a training step as one CUDA graph.
///
/// The first steps run without a graph, so that libraries choose their kernels and build their tables. Then the work is
/// captured once, on batches at fixed addresses, and every later step copies its batches there and launches the graph.
/// The gradients are in the graph's own memory, at the same addresses in every step. Kernels and their order are those
/// of a plain step.
class GradientGraph {
 public:
  /// `work` computes the mean loss of the batches and its gradients in the layers, which have none before.
  using Work = std::function<torch::Tensor(std::span<const Batch>)>;

  GradientGraph(std::vector<Layer> layers, Work work);

  /// The loss, still on the device; valid until the next call. Batches have the same sizes in all calls.
  torch::Tensor run(std::span<const Batch> batches);

 private:
  static constexpr int kPlainRuns = 2;

  void capture(std::span<const Batch> batches);

  std::vector<Layer> layers_;
  Work work_;
  int runs_ = 0;
  std::vector<Batch> batches_;
  torch::Tensor loss_;
  std::vector<torch::Tensor> gradients_;  // of the layers; undefined for one without
  std::optional<CudaGraph> graph_;
};

class GradientComputer {
 public:
  /// `model` is on the config's device, and `optimizer`, which outlives this, has its layers. Throws InputError when
  /// the device does not support the precision, or batches of a full batch do not divide the data.
  GradientComputer(const TrainConfig& config, std::shared_ptr<Model> model, std::shared_ptr<const Dataset> dataset,
                   const RankShare& share, Optimizer& optimizer);
  GradientComputer(const GradientComputer&) = delete;
  GradientComputer& operator=(const GradientComputer&) = delete;

  /// Replaces the gradients of the layers by those of training step `step` at the present parameters. Returns the mean
  /// loss of this rank's share, on the device, valid until the next call. Adds to forward and backward of `timing`.
  torch::Tensor compute(int64_t step, StepTiming& timing);

  /// Calls `observe` while the layers have the gradients of training step `step`, reduced over the ranks; then restores
  /// gradients and buffers, so that the run does not notice.
  void look_ahead(int64_t step, const std::function<void()>& observe);

  /// To be called when the GPU ran out of memory: throws InputError that names a batch that fits.
  [[noreturn]] void reject_batch();

  /// From now on waits for the device after each stage, so that StepTiming separates the stages on a GPU, too. A CUDA
  /// graph has no stages and is not used then.
  void time_stages() { time_stages_ = true; }

  /// The end of a stage: waits for the device if stages are timed.
  void finish_stage() const;

  /// The type losses are computed in, and how, for people.
  std::string precision() const;

 private:
  // One forward and backward pass per batch; the sum of the losses.
  torch::Tensor run_batches(std::span<const Batch> batches, StepTiming& timing);
  torch::Tensor run_graph(int64_t first, StepTiming& timing);
  torch::Tensor run_parts(int64_t first, StepTiming& timing);
  void choose_precision();
  bool can_use_graph() const;
  bool batch_fits(int64_t batch);

  const TrainConfig config_;
  const torch::Device device_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Dataset> dataset_;
  const RankShare share_;
  Optimizer& optimizer_;
  const int64_t batches_per_step_;
  Prefetcher train_batches_;
  torch::ScalarType compute_type_ = torch::kFloat32;
  std::optional<GradientGraph> graph_;
  bool time_stages_ = false;
};

}  // namespace gluon::lab
