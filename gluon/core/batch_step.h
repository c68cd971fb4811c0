// BatchStep: what one optimizer step knows about one batch of layers, filled top to bottom.
//
// A batch is the layers with the same matrix shape, norm, rule, dtype and device; c is its number of matrices.
// Radius rules read what stands above `radius`; observers see all of it after the parameters have moved. Layers left
// to AdamW come as batches of their own, without norm and direction: their momentum is m, their radius the learning
// rate.

#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "gluon/core/layer.h"

namespace gluon {

class Norm;

struct BatchStep {
  std::span<const Block> blocks{};      // the c matrices' places in their layers
  const Norm* norm = nullptr;           // the norm they share; none under AdamW
  int64_t step = 0;                     // k = 0, 1, ...
  std::vector<at::Tensor> gradients{};  // one per block, shaped as its part of the parameter
  at::Tensor momentum{};                // (c, m, n) the LMO's input
  at::Tensor direction{};               // (c, m, n) lmo(momentum), perhaps in float16; undefined under AdamW
  at::Tensor heading{};                 // (c, m, n) what the layers move along: the direction, normalised or as it is
  at::Tensor radius{};                  // (c)       t, on the layers' device

  /// |momentum|* of each matrix, (c), as -<momentum, direction>: free, and as exact as the LMO was. Throws
  /// InputError under AdamW.
  at::Tensor momentum_dual_norm() const;
};

/// Watches steps; must not change what it sees. A run with an observer is bit-identical to one without.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Called once per step k, before anything moves: the layers hold X_k and its gradients.
  virtual void before_step(int64_t step) { (void)step; }

  /// Whether after_step() is to be called in step k. True costs time: the GPU's fused step keeps no directions, so they
  /// are computed once more.
  virtual bool watches(int64_t step) const {
    (void)step;
    return true;
  }

  /// Called for every batch of layers after its parameters have moved, in the steps this observer watches.
  virtual void after_step(const BatchStep& batch) = 0;
};

}  // namespace gluon
