#include "lab/ranks/join_ranks.h"

#include <cstdlib>
#include <iostream>

#include "gluon/distributed/store.h"
#include "lab/ranks/meeting.h"
#include "lab/ranks/rank_watch.h"

namespace gluon::lab {
namespace {

// An exchange with a lost rank hangs on the GPU, where nothing can be thrown.
void end_process(int rank, const std::string& cause) {
  std::cerr << "gluon: rank " << rank << ": " << cause << std::endl;
  std::_Exit(1);
}

}  // namespace

CollectivePtr join_ranks(std::string_view backend, const Ranks& ranks) {
  WatchOptions options;
  if (backend == "nccl") {
    options.on_lost = [rank = ranks.rank](const std::string& cause) { end_process(rank, cause); };
  }
  return make_collective(backend, ranks, [options](const Ranks& ranks) {
    const StorePtr store = open_store(ranks);
    join_or_fail(*store, ranks);
    // A connection of its own: exchanges may block the first one.
    const StorePtr watched = open_store(ranks, /*serve=*/false);
    return Meeting{store, std::make_shared<RankWatch>(watched, ranks, options)};
  });
}

}  // namespace gluon::lab
