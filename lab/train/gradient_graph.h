// GradientGraph: the forward and backward passes of a training step as one CUDA graph.
//
// The first steps run without a graph, so that libraries choose their kernels and build their tables. Then the work is
// captured once, on batches at fixed addresses, and every later step copies its batches there and launches the graph.
// The gradients are in the graph's own memory, at the same addresses in every step. Kernels and their order are those
// of a plain step.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gluon/core/layer.h"
#include "lab/data/dataset.h"
#include "lab/train/cuda_graph.h"

namespace gluon::lab {

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

}  // namespace gluon::lab
