// RankWatch: how ranks learn why one of them is gone. An exchange that fails only says that a connection broke.
//
//   every rank  -- record: beats, exchanges, ending -->  rank 0  -- news: whose fault it is -->  every rank
//
// Each rank has a thread that does this at every beat, through the store that rank 0 holds. It alone speaks with the
// store, which may hang when rank 0 does; everybody else reads what it heard last.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gluon/distributed/ranks.h"

namespace gluon {

struct WatchOptions {
  std::chrono::milliseconds beat{500};  // a few of them make a silence
  /// Called in the thread, with cause(), once a rank has been lost for the whole timeout; null: never.
  std::function<void(const std::string&)> on_lost = nullptr;
};

class RankWatch {
 public:
  RankWatch(c10::intrusive_ptr<c10d::Store> store, const Ranks& ranks, WatchOptions options = {});

  /// Leaves. Rank 0 stays until the others have left, too, a few seconds at most: the store goes with it.
  ~RankWatch();

  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  int rank() const;

  /// Called before each exchange: a rank that has begun fewer than the others is what they wait for.
  void count_exchange();

  /// Why an exchange failed: "rank 2 does not answer", "rank 1 ended with an error: ..."; empty when all ranks are
  /// well. Waits a few seconds until there is a reason.
  std::string cause() const;

  /// This rank ends with an error of its own, or because it lost another.
  void fail(const std::string& why);
  void give_up(const std::string& why);
  bool ends() const;

  /// Whether rank 0 ends with the same error, which it will tell; waits a moment for that.
  bool first_fails_with(const std::string& why) const;

 private:
  struct State;

  void end(char how, const std::string& why);

  std::shared_ptr<State> state_;  // the thread's, too, which may outlive this object when the store hangs
  std::thread thread_;
};

}  // namespace gluon
