// RankShare: this rank's examples of a batch that all ranks share, and what all ranks say together.
//
//   batch of B examples, N ranks:  rank r has the examples [B r / N, B (r + 1) / N)

#pragma once

#include <span>
#include <vector>

#include "gluon/distributed/collective.h"
#include "lab/data/dataset.h"

namespace gluon::lab {

class RankShare {
 public:
  /// One rank alone when null.
  explicit RankShare(CollectivePtr collective);

  const CollectivePtr& collective() const { return collective_; }
  bool alone() const { return collective_->size() == 1; }
  bool is_first() const { return collective_->rank() == 0; }

  /// Views; a rank may have no example of a small batch.
  Batch of(const Batch& batch) const;

  /// The sum over the ranks of each number.
  std::vector<double> sum(std::vector<double> numbers) const;

  /// Gives everybody the tensors of the first rank.
  void copy_from_first(std::span<const torch::Tensor> tensors) const;

 private:
  CollectivePtr collective_;
};

}  // namespace gluon::lab
