// Model: a network as the trainer sees it.

#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "gluon/core/layer.h"
#include "lab/data/dataset.h"

namespace gluon::lab {

/// The projections of an attention layer, and the largest logit of each head.
struct AttentionLogits {
  torch::Tensor query, key;  // (heads d, n)
  torch::Tensor largest;     // (heads)
};

class Model : public torch::nn::Module {
 public:
  /// Logits: (B, T, vocabulary) for language, (B, classes) for images.
  virtual torch::Tensor forward(const torch::Tensor& inputs) = 0;

  /// Mean cross-entropy of the batch, a scalar; `label_smoothing` in [0, 1) where the model uses it.
  virtual torch::Tensor loss(const Batch& batch, double label_smoothing) = 0;

  /// Computes losses in `type` from now on; parameters keep their type. Returns false, and computes in float32, if the
  /// model cannot.
  virtual bool set_compute_type(torch::ScalarType type) { return type == torch::kFloat32; }

  /// Describes what takes a slow path in the compute type; empty if nothing does.
  virtual std::string slow_part() const { return {}; }

  /// From now on every training pass raises `largest` of each attention layer to the largest logits that it sees. None
  /// without attention, or where QK norm takes the scale of the projections out of the logits.
  virtual std::vector<AttentionLogits> watch_logits() { return {}; }

  /// Trainable parameters with their roles.
  virtual std::vector<Layer> layers() const = 0;
};

}  // namespace gluon::lab
