// Rendezvous: how ranks find each other, and how they learn why one of them is lost. make_collective(backend, ranks)
// brings its own; a program that supervises its ranks more closely passes another one.

#pragma once

#include <functional>
#include <string>

#include "gluon/distributed/collective.h"

namespace gluon {

/// Follows the exchanges of this rank and explains failures. A null monitor explains nothing.
class RankMonitor {
 public:
  virtual ~RankMonitor() = default;

  /// Called before each exchange.
  virtual void count_exchange() = 0;

  /// An exchange failed, and this rank stops. Returns the cause: "rank 2 does not answer".
  virtual std::string explain_failure() = 0;

  /// See Collective::leave().
  virtual bool leave(const std::string& why) = 0;
};

struct Meeting;  // store.h

/// Returns when all ranks have joined, and throws as make_collective(). It runs in a thread of its own, which is
/// abandoned when it takes longer than twice the timeout: it must own what it uses.
using Rendezvous = std::function<Meeting(const Ranks&)>;

CollectivePtr make_collective(std::string_view backend, const Ranks& ranks, const Rendezvous& rendezvous);

/// Its backends. A build without one compiles the file that throws instead.
CollectivePtr make_gloo(const Ranks& ranks, const Rendezvous& rendezvous);
CollectivePtr make_nccl(const Ranks& ranks, const Rendezvous& rendezvous);

}  // namespace gluon
