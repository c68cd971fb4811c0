#include "lab/train/gradient_graph.h"

namespace gluon::lab {

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
  graph_.emplace([&] { loss_ = work_(batches_); });
  for (const Layer& layer : layers_) gradients_.push_back(layer.parameter.grad());
}

}  // namespace gluon::lab
