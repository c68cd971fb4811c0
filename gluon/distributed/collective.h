// Collective: exchanges of tensors between the ranks, the processes that train together. `single` is one process, where
// every call returns at once; `gloo` (CPUs) and `nccl` (GPUs) are process groups of c10d.
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

/// Another rank has ended, hangs, or cannot be reached. All remaining ranks throw this within the timeout.
class RankLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An exchange in progress. Its tensor must not be used before wait() has returned.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Throws RankLost.
  virtual void wait() = 0;
};
using ExchangePtr = std::unique_ptr<Exchange>;

/// All ranks call the same functions in the same order with tensors of the same size. A tensor that is not contiguous,
/// or not on the backend's type of device, is copied there and back.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Replaces the tensor by the sum over all ranks.
  virtual ExchangePtr all_reduce(at::Tensor tensor) = 0;

  /// Replaces the tensor of `root` by the sum over all ranks; the contents of the other tensors are undefined
  /// afterwards.
  virtual ExchangePtr reduce(at::Tensor tensor, int root) = 0;

  /// Replaces the tensor of every rank by that of `root`.
  virtual ExchangePtr broadcast(at::Tensor tensor, int root) = 0;

  /// Announces that this rank stops with the error `why`, so that the others can report it. Returns true when rank 0
  /// stops with the same error: it is then enough that rank 0 prints it. No exchange may follow.
  virtual bool leave(const std::string& /*why*/) { return false; }
};
using CollectivePtr = std::shared_ptr<Collective>;

/// How the gradients of several ranks become one.
struct ReductionOptions {
  bool mean = true;  // over the ranks; false: their sum

  /// Add in float64, also the batches that one rank adds up: after rounding to float32 the result then hardly ever
  /// depends on the order of the terms, so on the number of ranks.
  bool exact = false;

  int64_t bucket_bytes = int64_t{25} << 20;  // of gradients that are sent together

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

/// Joins the other ranks. `backend` is "single", "gloo" or "nccl". Throws InputError when this build does not have the
/// backend, or cannot use it with these ranks, and RankLost when the others do not join within the timeout.
CollectivePtr make_collective(std::string_view backend, const Ranks& ranks);

/// Returns the sums over all ranks, element by element, on every rank.
std::vector<double> sum(Collective& collective, const std::vector<double>& numbers);

/// Returns the concatenated numbers of all ranks, in rank order, on every rank. Their count may differ between ranks.
std::vector<double> gather(Collective& collective, const std::vector<double>& numbers);

/// Returns the text of `root` on every rank.
std::string broadcast_text(Collective& collective, const std::string& text, int root);

/// Throws the same InputError on every rank unless all of them have the same `parts` (name -> value): "ranks differ in
/// their batch: rank 0 has '16', rank 2 has '8'".
void check_agreement(Collective& collective, const std::map<std::string, std::string>& parts);

}  // namespace gluon
