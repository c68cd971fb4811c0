#include "gluon/distributed/process_group.h"

#include <ATen/ATen.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <future>
#include <thread>

#include "gluon/core/check.h"

namespace gluon {

struct ProcessGroup::Member {
  int rank = 0;
  std::shared_ptr<RankMonitor> monitor;
  std::atomic<bool> broken = false;  // an exchange failed, or this rank has left
};

namespace {

constexpr std::chrono::seconds kSlack{5};          // beyond the timeouts that c10d keeps itself
constexpr std::chrono::milliseconds kClose{1000};  // to close a broken group

// Runs `body` in a new thread; returns false when it takes longer than `limit`. The thread then continues on its own:
// `body` must own what it uses. For calls that hang when another process does. The thread, and those that c10d starts
// in it, block SIGPIPE: Gloo writes to ranks that are gone, which would end the process.
bool finishes_within(std::chrono::milliseconds limit, std::function<void()> body) {
  std::packaged_task<void()> task([body = std::move(body)] {
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    body();
  });
  std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (done.wait_for(limit) != std::future_status::ready) return false;
  done.get();
  return true;
}

// Runs `body` and turns its errors into a RankLost that names the cause.
template <typename Body> auto guarded(ProcessGroup::Member& member, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    member.broken = true;
    const std::string cause =
        member.monitor ? member.monitor->explain_failure() : "an exchange with the other ranks failed";
    throw RankLost(join("rank ", member.rank, ": ", cause, " (", first_line(error), ")"));
  }
}

class C10dExchange : public Exchange {
 public:
  C10dExchange(std::shared_ptr<ProcessGroup::Member> member, c10::intrusive_ptr<c10d::Work> work, at::Tensor tensor,
               at::Tensor sent)
      : member_(std::move(member)), work_(std::move(work)), tensor_(std::move(tensor)), sent_(std::move(sent)) {}

  // On a GPU the current stream waits, not this thread.
  void wait() override {
    guarded(*member_, [&] {
      work_->wait();
      if (!sent_.is_same(tensor_)) tensor_.copy_(sent_);
    });
  }

 private:
  std::shared_ptr<ProcessGroup::Member> member_;
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor tensor_;
  at::Tensor sent_;  // the tensor itself, or its contiguous copy on the group's device
};

Meeting meet(const Ranks& ranks, const Rendezvous& rendezvous) {
  const auto meeting = std::make_shared<Meeting>();
  // Opening the store and waiting for the ranks take one timeout each; a store whose process is stopped never answers.
  if (!finishes_within(2 * ranks.timeout + kSlack, [=] { *meeting = rendezvous(ranks); })) {
    throw RankLost(join("rank ", ranks.rank, ": the store does not answer at ", place_and_time(ranks)));
  }
  return std::move(*meeting);
}

}  // namespace

ProcessGroup::ProcessGroup(const Ranks& ranks, GroupOptions options, const Rendezvous& rendezvous)
    : ranks_(ranks), options_(std::move(options)) {
  Meeting meeting = meet(ranks_, rendezvous ? rendezvous : meet_at_store);
  store_ = std::move(meeting.store);
  member_ = std::make_shared<Member>();
  member_->rank = ranks_.rank;
  member_->monitor = std::move(meeting.monitor);
  guarded(*member_, [&] {
    const auto group = std::make_shared<c10::intrusive_ptr<C10dGroup>>();
    const auto connect = [group, connect = options_.connect, store = store_] { *group = connect(store); };
    if (!finishes_within(ranks_.timeout + kSlack, connect)) throw RankLost("connecting takes too long");
    group_ = *group;
  });
}

// Closes the connections first: by that the other ranks notice that this one has left. A broken group may wait for
// exchanges that never end; its last thread then ends with the process.
ProcessGroup::~ProcessGroup() {
  const bool broken = member_->broken || std::uncaught_exceptions() > 0;
  std::function<void()> close = [group = std::move(group_), close = broken ? nullptr : options_.close]() mutable {
    if (close) close(*group);
    group.reset();
  };
  try {
    if (broken) {
      finishes_within(kClose, std::move(close));
    } else {
      close();
    }
  } catch (const std::exception&) {  // nothing is left to be done about it
  }
}

ExchangePtr ProcessGroup::exchange(at::Tensor tensor, const Start& start) {
  if (member_->monitor) member_->monitor->count_exchange();
  return guarded(*member_, [&]() -> ExchangePtr {
    const bool here = tensor.device().type() == options_.device.type();
    const at::Tensor sent = (here ? tensor : tensor.to(options_.device)).contiguous();
    std::vector<at::Tensor> tensors{sent};
    return std::make_unique<C10dExchange>(member_, start(tensors), tensor, sent);
  });
}

ExchangePtr ProcessGroup::all_reduce(at::Tensor tensor) {
  return exchange(std::move(tensor), [&](auto& tensors) { return group_->allreduce(tensors); });
}

ExchangePtr ProcessGroup::reduce(at::Tensor tensor, int root) {
  c10d::ReduceOptions options;
  options.rootRank = root;
  return exchange(std::move(tensor), [&](auto& tensors) { return group_->reduce(tensors, options); });
}

ExchangePtr ProcessGroup::broadcast(at::Tensor tensor, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return exchange(std::move(tensor), [&](auto& tensors) { return group_->broadcast(tensors, options); });
}

bool ProcessGroup::leave(const std::string& why) {
  member_->broken = true;
  return member_->monitor && member_->monitor->leave(why);
}

}  // namespace gluon
