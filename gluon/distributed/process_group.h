// A Collective over a process group of c10d. What c10d throws becomes a sentence that names the lost rank.

#pragma once

#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <functional>

#include "gluon/distributed/collective.h"
#include "gluon/distributed/meeting.h"
#include "gluon/distributed/rank_watch.h"

namespace gluon {

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif

struct GroupOptions {
  std::string name;
  at::Device device;  // tensors of another kind of device are copied there and back
  std::function<c10::intrusive_ptr<C10dGroup>(const Meeting&)> connect;  // owns what it uses
  std::function<void(C10dGroup&)> close = nullptr;  // before the end of a run that went well
  WatchOptions watch = {};
};

class ProcessGroup : public Collective {
 public:
  /// Meets the other ranks and connects them. Throws as make_collective().
  ProcessGroup(const Ranks& ranks, GroupOptions options);
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

 private:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>;

  ExchangePtr exchange(at::Tensor tensor, const Start& start);

  Ranks ranks_;
  GroupOptions options_;
  Meeting meeting_;  // rank 0's holds the store, which the watch needs to the end
  std::shared_ptr<RankWatch> watch_;
  c10::intrusive_ptr<C10dGroup> group_;
};

}  // namespace gluon
