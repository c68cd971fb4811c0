// RankShare: this rank's examples of a batch that all ranks share.
//
//   batch of B examples in P parts:  part p has the examples [B p / P, B (p + 1) / P)
//   N ranks:                         rank r has the parts    [P r / N, P (r + 1) / N)
//
// A sum in float32 depends on its order, and training amplifies a difference in the last bit to a percent within fifty
// steps. So the parts do not depend on the number of ranks: each is computed by itself on some rank, and the parts'
// gradients are added in float64 (ReductionOptions::exact). Where parts cost too much (on a GPU) or change the result
// (batch norm), each rank's share is one piece (P = 1), and runs with different ranks agree only up to rounding.

#pragma once

#include <span>
#include <vector>

#include "gluon/distributed/collective.h"
#include "lab/data/dataset.h"

namespace gluon::lab {

/// 12, which 1, 2, 3, 4, 6 and 12 ranks share evenly; otherwise the smallest multiple of `ranks` above 12.
int64_t common_parts(int ranks);

class RankShare {
 public:
  /// A null `collective` is a single rank; with one part each rank has one piece. Throws InputError when there are
  /// fewer parts than ranks, but more than one.
  explicit RankShare(CollectivePtr collective, int64_t parts = 1);

  const CollectivePtr& collective() const { return collective_; }
  bool alone() const { return collective_->name() == "single"; }

  /// Whether gradients do not depend on the number of ranks.
  bool is_exact() const { return parts_ > 1; }

  /// This rank's examples, as views; none where the batch is smaller than the number of parts.
  Batch of(const Batch& batch) const;

  /// The non-empty parts of of(batch), where the batch has `examples` examples.
  std::vector<Batch> parts(const Batch& mine, int64_t examples) const;

  /// Copies the tensors of the first rank to all ranks.
  void copy_from_first(std::span<const torch::Tensor> tensors) const;

 private:
  struct Range {
    int64_t begin;
    int64_t end;
  };

  int64_t pieces() const { return is_exact() ? parts_ : collective_->size(); }
  Range own_pieces() const;

  CollectivePtr collective_;
  int64_t parts_;
};

}  // namespace gluon::lab
