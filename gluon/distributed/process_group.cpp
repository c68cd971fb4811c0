#include "gluon/distributed/process_group.h"

#include <ATen/ATen.h>

#include <exception>

#include "gluon/core/check.h"

namespace gluon {
namespace {

constexpr std::chrono::seconds kSlack{5};          // beyond a timeout that c10d keeps itself
constexpr std::chrono::milliseconds kClose{1000};  // for closing a group that is broken

// Runs `body`; an error becomes a RankLost that says whose fault it is, here and on the other ranks.
template <typename Body>
auto guarded(RankWatch& watch, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::string cause = watch.cause();
    if (cause.empty()) cause = "an exchange between ranks failed, though all of them answer";
    watch.give_up(cause);
    throw RankLost(join("rank ", watch.rank(), ": ", cause, "; the run ends here (", first_line(error), ")"));
  }
}

class C10dExchange : public Exchange {
 public:
  C10dExchange(std::shared_ptr<RankWatch> watch, c10::intrusive_ptr<c10d::Work> work, at::Tensor tensor,
               at::Tensor there)
      : watch_(std::move(watch)),
        work_(std::move(work)),
        tensor_(std::move(tensor)),
        there_(std::move(there)) {}

  // On a GPU this makes the current stream wait, not this thread.
  void wait() override {
    guarded(*watch_, [&] {
      work_->wait();
      if (!there_.is_same(tensor_)) tensor_.copy_(there_);
    });
  }

 private:
  std::shared_ptr<RankWatch> watch_;
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor tensor_;  // kept while it is on its way
  at::Tensor there_;   // what travels: the tensor itself, or its copy on the group's device
};

}  // namespace

ProcessGroup::ProcessGroup(const Ranks& ranks, GroupOptions options)
    : ranks_(ranks),
      options_(std::move(options)),
      meeting_(meet(ranks_)),
      watch_(std::make_shared<RankWatch>(meeting_.watch_store, ranks_, options_.watch)) {
  guarded(*watch_, [&] {
    const auto result = std::make_shared<c10::intrusive_ptr<C10dGroup>>();
    const auto connect = [=, connect = options_.connect, meeting = meeting_] { *result = connect(meeting); };
    // The store has no timeout of its own for rank 0 being stopped.
    if (!finishes_within(ranks_.timeout + kSlack, connect)) throw RankLost("connecting takes too long");
    group_ = *result;
  });
}

// The connections go first: to the other ranks that is the sign that this one does not take part any more. A broken
// group may wait for exchanges that never end; its last thread then ends with the process.
ProcessGroup::~ProcessGroup() {
  const bool broken = watch_->ends() || std::uncaught_exceptions() > 0;
  std::function<void()> close = [group = std::move(group_),
                                 close = broken ? nullptr : options_.close]() mutable {
    if (close) close(*group);
    group.reset();
  };
  try {
    if (broken) {
      finishes_within(kClose, std::move(close));
    } else {
      close();
    }
  } catch (const std::exception&) {  // the run is over, whatever c10d says to that
  }
}

ExchangePtr ProcessGroup::exchange(at::Tensor tensor, const Start& start) {
  watch_->count_exchange();
  return guarded(*watch_, [&]() -> ExchangePtr {
    const bool here = tensor.device().type() == options_.device.type();
    const at::Tensor there = (here ? tensor : tensor.to(options_.device)).contiguous();
    std::vector<at::Tensor> tensors{there};
    return std::make_unique<C10dExchange>(watch_, start(tensors), tensor, there);
  });
}

ExchangePtr ProcessGroup::all_reduce(at::Tensor tensor) {
  return exchange(std::move(tensor),
                  [&](std::vector<at::Tensor>& tensors) { return group_->allreduce(tensors); });
}

ExchangePtr ProcessGroup::reduce(at::Tensor tensor, int root) {
  c10d::ReduceOptions options;
  options.rootRank = root;
  return exchange(std::move(tensor),
                  [&](std::vector<at::Tensor>& tensors) { return group_->reduce(tensors, options); });
}

ExchangePtr ProcessGroup::broadcast(at::Tensor tensor, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return exchange(std::move(tensor),
                  [&](std::vector<at::Tensor>& tensors) { return group_->broadcast(tensors, options); });
}

bool ProcessGroup::leave(const std::string& why) {
  watch_->fail(why);
  return watch_->first_fails_with(why);
}

}  // namespace gluon
