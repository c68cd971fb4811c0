// A Collective over a c10d process group. It turns the errors of c10d into RankLost with one sentence.

#pragma once

#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <functional>

#include "gluon/distributed/store.h"

namespace gluon {

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif

struct GroupOptions {
  std::string name;
  at::Device device;  // tensors on another type of device are copied to it and back
  std::function<c10::intrusive_ptr<C10dGroup>(const StorePtr&)> connect;  // owns what it uses
  std::function<void(C10dGroup&)> close = nullptr;                        // called unless the group is broken
};

class ProcessGroup : public Collective {
 public:
  /// Meets the other ranks and connects to them; a null rendezvous is meet_at_store(). Throws as make_collective().
  ProcessGroup(const Ranks& ranks, GroupOptions options, const Rendezvous& rendezvous);
  ~ProcessGroup() override;

  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  std::string_view name() const override { return options_.name; }
  int rank() const override { return ranks_.rank; }
  int size() const override { return ranks_.size; }
  ExchangePtr all_reduce(at::Tensor tensor) override;
  ExchangePtr reduce(at::Tensor tensor, int root) override;
  ExchangePtr broadcast(at::Tensor tensor, int root) override;
  bool leave(const std::string& why) override;

  /// This rank, as its exchanges know it; they may outlive the group.
  struct Member;

 private:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>;

  ExchangePtr exchange(at::Tensor tensor, const Start& start);

  Ranks ranks_;
  GroupOptions options_;
  StorePtr store_;  // outlives the member's monitor
  std::shared_ptr<Member> member_;
  c10::intrusive_ptr<C10dGroup> group_;
};

}  // namespace gluon
