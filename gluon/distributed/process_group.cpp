#include "gluon/distributed/process_group.h"

#include <functional>

#include "gluon/check.h"

namespace gluon {
namespace {

constexpr std::chrono::milliseconds kBeat{500};

std::string key_of(int rank) { return "alive/" + std::to_string(rank); }

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

// Runs `exchange`; what c10d throws becomes a sentence that names the lost rank.
template <typename Body>
auto guarded(const Ranks& ranks, const Heartbeat& heartbeat, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const std::string silent = heartbeat.silent_ranks();
    throw RankLost(join("rank ", ranks.rank, ": ",
                        silent.empty() ? "an exchange between ranks failed, though all of them answer"
                                       : silent + " does not answer",
                        "; the run ends here (", error.what(), ")"));
  }
}

class C10dExchange : public Exchange {
 public:
  C10dExchange(Ranks ranks, std::shared_ptr<const Heartbeat> heartbeat, c10::intrusive_ptr<c10d::Work> work,
               at::Tensor tensor)
      : ranks_(std::move(ranks)),
        heartbeat_(std::move(heartbeat)),
        work_(std::move(work)),
        tensor_(std::move(tensor)) {}

  void wait() override {
    guarded(ranks_, *heartbeat_, [&] { return work_->wait(); });
  }

 private:
  Ranks ranks_;
  std::shared_ptr<const Heartbeat> heartbeat_;
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor tensor_;  // kept while it is on its way
};

}  // namespace

c10::intrusive_ptr<c10d::TCPStore> meet(const Ranks& ranks) {
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.isServer = ranks.rank == 0;
  options.numWorkers = static_cast<std::size_t>(ranks.size);
  options.timeout = ranks.timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options);
  } catch (const std::exception& error) {
    throw RankLost(join("rank ", ranks.rank, ": not all of ", ranks.size, " ranks met at ",
                        ranks.master_address, ":", ranks.master_port, " within ",
                        ranks.timeout.count() / 1000.0, " s (", error.what(), ")"));
  }
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::TCPStore> store, const Ranks& ranks)
    : store_(std::move(store)), ranks_(ranks) {
  store_->add(key_of(ranks_.rank), 1);
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kBeat, [this] { return stopping_; })) {
      try {
        store_->add(key_of(ranks_.rank), 1);
      } catch (const std::exception&) {
        return;  // rank 0 is gone: whoever exchanges something next will find out
      }
    }
  });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<int64_t> Heartbeat::counts() const {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks_.size; ++rank) counts.push_back(store_->add(key_of(rank), 0));
  return counts;
}

std::string Heartbeat::silent_ranks() const {
  try {
    const std::vector<int64_t> before = counts();
    std::this_thread::sleep_for(4 * kBeat);
    const std::vector<int64_t> after = counts();
    std::vector<int> silent;
    for (int rank = 0; rank < ranks_.size; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      if (rank != ranks_.rank && before[i] == after[i]) silent.push_back(rank);
    }
    return silent.empty() ? "" : listed(silent);
  } catch (const std::exception&) {
    return "rank 0, where the ranks meet,";
  }
}

ProcessGroup::ProcessGroup(std::string name, const Ranks& ranks, c10::intrusive_ptr<c10d::TCPStore> store,
                           c10::intrusive_ptr<C10dGroup> group)
    : name_(std::move(name)),
      ranks_(ranks),
      group_(std::move(group)),
      heartbeat_(std::make_shared<Heartbeat>(std::move(store), ranks)) {}

ExchangePtr ProcessGroup::all_reduce(at::Tensor tensor) {
  return guarded(ranks_, *heartbeat_, [&]() -> ExchangePtr {
    std::vector<at::Tensor> tensors{tensor};
    return std::make_unique<C10dExchange>(ranks_, heartbeat_, group_->allreduce(tensors), tensor);
  });
}

ExchangePtr ProcessGroup::reduce(at::Tensor tensor, int root) {
  return guarded(ranks_, *heartbeat_, [&]() -> ExchangePtr {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.rootRank = root;
    return std::make_unique<C10dExchange>(ranks_, heartbeat_, group_->reduce(tensors, options), tensor);
  });
}

ExchangePtr ProcessGroup::broadcast(at::Tensor tensor, int root) {
  return guarded(ranks_, *heartbeat_, [&]() -> ExchangePtr {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return std::make_unique<C10dExchange>(ranks_, heartbeat_, group_->broadcast(tensors, options), tensor);
  });
}

}  // namespace gluon
