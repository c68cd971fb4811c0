// Collective: what processes that train together say to each other. One process is `single`, where every call returns
// at once; several meet over c10d: `gloo` on CPUs, `nccl` on GPUs.
//
//   const CollectivePtr collective = make_collective("gloo", Ranks::from_environment());
//   collective->reduce(gradient, owner)->wait();      // the sum arrives at `owner`

#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gluon/distributed/ranks.h"

namespace gluon {

/// A rank is gone, hangs, or cannot be reached: what every other one throws within the timeout.
class RankLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An exchange under way; its tensor may not be touched before wait() has returned.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Throws RankLost.
  virtual void wait() = 0;
};
using ExchangePtr = std::unique_ptr<Exchange>;

/// Ranks call the same functions in the same order with tensors of the same size. Those that are not contiguous, or
/// on another kind of device than the backend's, are copied there and back.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Everybody's sum to everybody, in place.
  virtual ExchangePtr all_reduce(at::Tensor tensor) = 0;

  /// Everybody's sum to `root`, in place; the others' tensors may hold anything afterwards.
  virtual ExchangePtr reduce(at::Tensor tensor, int root) = 0;

  /// The tensor of `root` to everybody.
  virtual ExchangePtr broadcast(at::Tensor tensor, int root) = 0;

  /// Tells the others why this rank ends, so that they can say so. Whether the first rank ends for the same reason:
  /// then it is enough that it says so. No exchange can follow.
  virtual bool leave(const std::string& /*why*/) { return false; }
};
using CollectivePtr = std::shared_ptr<Collective>;

/// Meets the other ranks. `backend` is "single", "gloo" or "nccl". Throws InputError when this build has no such
/// backend, or ranks do not fit it, and RankLost when the others do not come within the timeout.
CollectivePtr make_collective(std::string_view backend, const Ranks& ranks);

/// The sum over the ranks of each number, on every rank.
std::vector<double> sum(Collective& collective, const std::vector<double>& numbers);

/// The numbers of all ranks, in their order, on every rank; they need not be as many on each.
std::vector<double> gather(Collective& collective, const std::vector<double>& numbers);

/// The text of `root`, on every rank.
std::string broadcast_text(Collective& collective, const std::string& text, int root);

/// Throws the same InputError on every rank, unless all of them have the same `parts` (name -> value): "ranks differ
/// in their batch: rank 0 has '16', rank 2 has '8'".
void check_agreement(Collective& collective, const std::map<std::string, std::string>& parts);

/// The same for one part.
void check_agreement(Collective& collective, std::string_view what, const std::string& text);

}  // namespace gluon
