#include "lab/ranks/meeting.h"

#include <chrono>
#include <thread>

#include "gluon/core/check.h"
#include "gluon/distributed/store.h"

namespace gluon::lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::milliseconds kDelivery{400};  // for the others to read an error before rank 0's store closes
constexpr const char* kMisfit = "meeting/misfit";    // the text of an InputError
constexpr const char* kAbsence = "meeting/absence";  // the text of a RankLost

std::string joined_key(int rank) { return join("meeting/joined/", rank); }

std::vector<int> missing_ranks(c10d::Store& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({joined_key(rank)})) missing.push_back(rank);
  }
  return missing;
}

// Polls one rank at a time: the store has to answer all ranks.
void wait_for_all(c10d::Store& store, const Ranks& ranks) {
  const Clock::time_point deadline = Clock::now() + ranks.timeout;
  for (int rank = 0; rank < ranks.size; ++rank) {
    while (!store.check({joined_key(rank)})) {
      if (store.check({kMisfit})) throw InputError(to_text(store.get(kMisfit)));
      if (store.check({kAbsence})) throw RankLost(to_text(store.get(kAbsence)));
      if (Clock::now() > deadline) {
        throw RankLost(join(list_ranks(missing_ranks(store, ranks.size)), " did not join at ", place_and_time(ranks)));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
}

void join_others(c10d::Store& store, const Ranks& ranks) {
  const std::string size = std::to_string(ranks.size);
  const std::string first_size = to_text(store.compareSet("meeting/size", {}, to_bytes(size)));
  GLUON_CHECK(first_size == size, "rank ", ranks.rank, " has WORLD_SIZE ", size, ", another rank has ", first_size);
  GLUON_CHECK(store.add(joined_key(ranks.rank), 1) == 1, "two processes have RANK ", ranks.rank);
  wait_for_all(store, ranks);
}

// Passes an error on to the other ranks.
void publish(c10d::Store& store, const char* key, const std::exception& error) {
  try {
    store.set(key, to_bytes(error.what()));
    std::this_thread::sleep_for(kDelivery);
  } catch (const std::exception&) {  // rank 0 and its store are gone: nobody is left to read it
  }
}

}  // namespace

void join_or_fail(c10d::Store& store, const Ranks& ranks) {
  const std::string self = join("rank ", ranks.rank, ": ");
  try {
    join_others(store, ranks);
  } catch (const InputError& error) {
    publish(store, kMisfit, error);
    throw InputError(self + error.what());
  } catch (const RankLost& error) {
    publish(store, kAbsence, error);
    throw RankLost(self + error.what());
  } catch (const std::exception& error) {
    throw RankLost(join(self, "rank 0 ended before all ranks had joined (", first_line(error), ")"));
  }
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace gluon::lab
