#include "lab/ranks/join_ranks.h"

#include <cstdlib>
#include <iostream>

#include "gluon/distributed/store.h"
#include "lab/ranks/rank_watch.h"

namespace gluon::lab {

CollectivePtr join_ranks(std::string_view backend, const Ranks& ranks) {
  WatchOptions options;
  if (backend == "nccl") {
    // An exchange with a lost rank hangs on the GPU, where nothing can be thrown.
    options.on_lost = [rank = ranks.rank](const std::string& cause) {
      std::cerr << "gluon: rank " << rank << ": " << cause << std::endl;
      std::_Exit(1);
    };
  }
  return make_collective(backend, ranks, [options](const Ranks& ranks) {
    Meeting meeting = meet_at_store(ranks);
    // A connection of its own: exchanges may block the first one.
    meeting.monitor = std::make_shared<RankWatch>(open_store(ranks, /*serve=*/false), ranks, options);
    return meeting;
  });
}

}  // namespace gluon::lab
