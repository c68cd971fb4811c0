// Shards: each layer has one owner, which alone keeps its momentum and computes its update.
//
//   gradients of all ranks  ->  their mean at the owner  ->  Optimizer::step() there  ->  the parameter at all ranks
//
// What owners have finished is on its way while they compute the rest: phase by phase, the same phases on every rank.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/distributed/collective.h"
#include "gluon/distributed/gradient_reducer.h"

namespace gluon {

class Shards {
 public:
  /// One owner a layer.
  Shards(std::vector<Layer> layers, std::vector<int> owners, CollectivePtr collective,
         const ReductionOptions& options);

  /// One rank: nothing travels.
  bool alone() const { return collective_->name() == "single"; }
  int rank() const { return collective_->rank(); }
  bool owns(std::size_t layer) const { return owners_[layer] == rank(); }
  int owner(std::size_t layer) const { return owners_[layer]; }

  GradientReducer& gradients() { return *gradients_; }

  /// The phase of a step, 0, 1, ..., after which each layer is done on its owner; the same on all ranks.
  void set_phases(const std::vector<int64_t>& phases);

  /// The owners' parameters of all phases before `end` that are not yet on their way.
  void send_parameters(int64_t end);

  /// Sends the rest and waits: everybody has the owners' parameters.
  void finish_parameters();

  /// The sum over the ranks.
  at::Tensor sum(at::Tensor tensor) const;

  /// Adds the entries of all ranks to those here; names differ between ranks.
  void gather(std::map<std::string, at::Tensor>& entries) const;

 private:
  // Layers of one phase, owner, dtype and device.
  struct Bucket {
    int64_t phase;
    int owner;
    std::vector<std::size_t> layers{};
    at::Tensor values{};  // under way
    ExchangePtr exchange{};
  };

  void send(Bucket& bucket) const;
  void receive(Bucket& bucket) const;
  // Bytes, in one message.
  void broadcast_packed(const std::vector<at::Tensor>& parts, int root) const;

  std::vector<Layer> layers_;
  std::vector<int> owners_;
  CollectivePtr collective_;
  std::unique_ptr<GradientReducer> gradients_;
  std::vector<Bucket> buckets_;  // in the order they leave
  std::size_t next_ = 0;
};

}  // namespace gluon
