// RankWatch: finds out which rank is lost and why. A failed exchange only says that a connection broke.
//
//   every rank  -- record: beats, exchanges, ending -->  rank 0  -- news: who is at fault -->  every rank
//
// A thread in each rank exchanges both at every beat, through the store that rank 0 serves. Only this thread uses the
// store, which hangs when rank 0 does; other threads read what it received last.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gluon/distributed/rendezvous.h"

namespace gluon::lab {

struct WatchOptions {
  std::chrono::milliseconds beat{500};  // a rank without any for six of these does not answer

  /// Called in the thread with the cause after a rank has been lost for the whole timeout; may be null.
  std::function<void(const std::string&)> on_lost = nullptr;
};

class RankWatch : public RankMonitor {
 public:
  RankWatch(c10::intrusive_ptr<c10d::Store> store, const Ranks& ranks, WatchOptions options = {});

  /// Rank 0 waits until the others have left, a few seconds at most, because the store closes with it.
  ~RankWatch() override;

  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// The others wait for the ranks that have started the fewest exchanges.
  void count_exchange() override;

  /// cause(), also reported to the other ranks as the reason why this rank stops.
  std::string explain_failure() override;

  bool leave(const std::string& why) override;

  /// "rank 2 does not answer", "rank 1 ended with an error: ..."; empty when nothing is wrong with any rank. Waits a
  /// few seconds for a reason to arrive.
  std::string cause() const;

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the thread, which outlives this object when the store hangs
  std::thread thread_;
};

}  // namespace gluon::lab
