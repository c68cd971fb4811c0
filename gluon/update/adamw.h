// AdamW for the layers a geometry leaves to it (Loshchilov and Hutter).
//
//   m <- beta1 m + (1 - beta1) g            v <- beta2 v + (1 - beta2) g^2
//   X <- (1 - lr decay) X - lr (m / (1 - beta1^j)) / (sqrt(v / (1 - beta2^j)) + eps)
//
// j counts the steps in which the layer had a gradient. The decay is any of radius/decay.h. The learning rate is the
// rule's radius times the schedule.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/radius/decay.h"
#include "gluon/update/executor.h"
#include "gluon/update/optimizer_options.h"
#include "gluon/update/state.h"

namespace gluon {

class AdamW {
 public:
  explicit AdamW(const AdamWOptions& options);

  void add_layer(const Layer& layer, double learning_rate, const Decay& decay);

  /// A layer that another rank moves: its gradient counts when gradients are clipped together. All ranks add all layers
  /// in the same order.
  void add_other_ranks_layer(const Layer& layer);

  /// Returns the sum over the ranks; may change its argument.
  using Sum = std::function<at::Tensor(at::Tensor)>;

  /// Moves every layer that has a gradient.
  void step(const StepContext& now, const Sum& over_ranks = {});

  struct Entry {
    Layer layer;
    double learning_rate;
    Decay decay;
    at::Tensor first;   // m, float32 or the parameter's float64
    at::Tensor second;  // v
    std::size_t place;  // among AdamW's layers of all ranks
    int64_t steps = 0;  // j
    double last_learning_rate = 0;
  };
  const std::vector<Entry>& entries() const { return entries_; }

  /// Copies to and from the entries "adamw.first/<layer>", "adamw.second/<layer>" and "adamw.steps/<layer>" of a
  /// state; `only` limits save() to the layer of this name.
  void save(OptimizerState& state, std::string_view only = {}) const;
  void load(const OptimizerState& state);

 private:
  at::Tensor clip_factor(const Sum& over_ranks) const;  // of this step; undefined when nothing is clipped

  AdamWOptions options_;
  std::vector<Entry> entries_;
  std::size_t layers_ = 0;       // of all ranks
  at::Device device_{at::kCPU};  // of the first of them
};

}  // namespace gluon
