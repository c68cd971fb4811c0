// Shards: each layer has one owner, which alone keeps its momentum and computes its update.
//
//   gradients of all ranks  ->  their mean at the owner  ->  Optimizer::step() there  ->  the parameter at all ranks
//
// Layers of one owner travel together, in buckets; all buckets are under way at once.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "gluon/distributed/collective.h"
#include "gluon/geometry/layer.h"

namespace gluon {

class Shards {
 public:
  /// One owner a layer.
  Shards(std::vector<Layer> layers, std::vector<int> owners, CollectivePtr collective);

  /// One rank: nothing travels.
  bool alone() const { return collective_->size() == 1; }
  bool owns(std::size_t layer) const { return owners_[layer] == collective_->rank(); }

  /// Gives owners the mean over the ranks as their layer's gradient; other ranks' gradients stay what they were. A rank
  /// without a gradient counts as one with zeros, unless no rank has any.
  void reduce_gradients() const;

  /// Gives everybody the owners' parameters.
  void gather_parameters() const;

  /// Whether any rank says so.
  bool any(bool value) const;

  /// Adds the entries of all ranks to those here; names differ between ranks.
  void gather(std::map<std::string, at::Tensor>& entries) const;

 private:
  // Neighbouring layers of one owner, dtype and device.
  struct Bucket {
    int owner;
    std::vector<std::size_t> layers;
  };

  std::vector<Bucket> make_buckets(const std::vector<bool>& taken) const;

  std::vector<Layer> layers_;
  std::vector<int> owners_;
  CollectivePtr collective_;
};

}  // namespace gluon
