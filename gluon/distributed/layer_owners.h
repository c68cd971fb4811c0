// LayerOwners: each layer has one owner, the rank that alone keeps its momentum and computes its update.
//
//   gradients of all ranks  ->  their mean at the owner  ->  Optimizer::step() there  ->  the parameter on all ranks
//
// Owners send parameters while they still compute the next ones, phase by phase; all ranks have the same phases.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/distributed/collective.h"
#include "gluon/distributed/gradient_reducer.h"

namespace gluon {

class LayerOwners {
 public:
  /// `owners` and `phases` have one entry per layer: who moves it, and after which phase 0, 1, ... of a step it has
  /// been moved.
  LayerOwners(std::vector<Layer> layers, std::vector<int> owners, const std::vector<int64_t>& phases,
              CollectivePtr collective, const ReductionOptions& options);

  /// Whether there is only one rank, so that nothing is sent.
  bool alone() const { return collective_->name() == "single"; }
  int rank() const { return collective_->rank(); }
  bool owns(std::size_t layer) const { return owners_[layer] == rank(); }

  /// The next `backward_passes` compute the gradients of one step; in the last one gradients leave for their owners.
  void begin_gradients(int64_t backward_passes) { gradients_->begin(backward_passes); }

  /// Gives owners the gradients of all ranks.
  void reduce_gradients();

  /// Gives them unless reduce_gradients() has, for the step that now uses them.
  void take_gradients();

  /// Drops what begin_gradients() and reduce_gradients() have done.
  void cancel_gradients();

  /// Starts to send the owners' parameters of all phases before `end`.
  void send_parameters(int64_t end);

  /// Sends the rest and waits until every rank has all parameters.
  void finish_parameters();

  /// The sum over the ranks.
  at::Tensor sum(at::Tensor tensor) const;

  /// Adds the entries of all other ranks to `entries`; names differ between ranks.
  void gather(std::map<std::string, at::Tensor>& entries) const;

 private:
  // Layers of one phase, owner, dtype and device.
  struct Bucket {
    int64_t phase = 0;
    int owner = 0;
    std::vector<std::size_t> layers{};
    at::Tensor values{};  // while it is being sent
    ExchangePtr exchange{};
  };

  void add_buckets(const std::vector<int64_t>& phases);
  void send(Bucket& bucket) const;
  void receive(Bucket& bucket) const;

  std::vector<Layer> layers_;
  std::vector<int> owners_;
  CollectivePtr collective_;
  std::unique_ptr<GradientReducer> gradients_;
  bool reduced_ = false;         // owners have the gradients of the next step
  std::vector<Bucket> buckets_;  // in the order they leave
  std::size_t next_ = 0;
};

}  // namespace gluon
