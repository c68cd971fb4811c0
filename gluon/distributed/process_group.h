// A Collective over a process group of c10d, and the watch over its ranks.

#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "gluon/distributed/collective.h"

namespace gluon {

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif

/// The store where the ranks meet; rank 0 holds it. Throws RankLost when they do not come.
c10::intrusive_ptr<c10d::TCPStore> meet(const Ranks& ranks);

/// A thread that counts up in the store as long as this rank lives, so that the others can tell who does not.
class Heartbeat {
 public:
  Heartbeat(c10::intrusive_ptr<c10d::TCPStore> store, const Ranks& ranks);
  ~Heartbeat();

  /// "rank 2", "ranks 1 and 3": those whose count stands still; empty when all go on.
  std::string silent_ranks() const;

 private:
  std::vector<int64_t> counts() const;

  c10::intrusive_ptr<c10d::TCPStore> store_;
  Ranks ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

class ProcessGroup : public Collective {
 public:
  ProcessGroup(std::string name, const Ranks& ranks, c10::intrusive_ptr<c10d::TCPStore> store,
               c10::intrusive_ptr<C10dGroup> group);

  std::string_view name() const override { return name_; }
  int rank() const override { return ranks_.rank; }
  int size() const override { return ranks_.size; }
  ExchangePtr all_reduce(at::Tensor tensor) override;
  ExchangePtr reduce(at::Tensor tensor, int root) override;
  ExchangePtr broadcast(at::Tensor tensor, int root) override;

 private:
  std::string name_;
  Ranks ranks_;
  c10::intrusive_ptr<C10dGroup> group_;
  std::shared_ptr<Heartbeat> heartbeat_;
};

}  // namespace gluon
