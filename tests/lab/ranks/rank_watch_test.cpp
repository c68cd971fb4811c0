#include "lab/ranks/rank_watch.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace gluon::lab {
namespace {

// A rank is silent after six beats. Where no rank may be silent, that must be longer than a machine stalls.
constexpr std::chrono::milliseconds kBeat{400}, kShortBeat{150};

// The ranks of one process, each with a watch, over a store in memory.
struct Watches {
  explicit Watches(int size) : store(c10::make_intrusive<c10d::HashStore>()) {
    for (int rank = 0; rank < size; ++rank) {
      watches.push_back(
          std::make_unique<RankWatch>(store, Ranks{.rank = rank, .size = size}, WatchOptions{.beat = kBeat}));
    }
  }
  ~Watches() {
    while (!watches.empty()) watches.pop_back();  // rank 0 last: it waits for the others
  }

  RankWatch& operator[](std::size_t rank) { return *watches[rank]; }

  c10::intrusive_ptr<c10d::Store> store;
  std::vector<std::unique_ptr<RankWatch>> watches;
};

TEST(RankWatch, NamesTheRankThatFailed) {
  Watches ranks(3);
  ranks[2].leave("the disk is full\nand so on");
  EXPECT_EQ(ranks[0].cause(), "rank 2 ended with an error: the disk is full");
  EXPECT_EQ(ranks[1].explain_failure(), "rank 2 ended with an error: the disk is full");
}

TEST(RankWatch, PassesOnWhyARankGaveUp) {
  Watches ranks(3);
  EXPECT_EQ(ranks[1].explain_failure(), "an exchange failed although all ranks answer");
  ranks[1].leave("a consequence of it");
  EXPECT_EQ(ranks[0].cause(), "an exchange failed although all ranks answer");
  EXPECT_EQ(ranks[2].cause(), "an exchange failed although all ranks answer");
}

TEST(RankWatch, NamesTheRankThatIsBehind) {
  Watches ranks(3);
  ranks[0].count_exchange();
  ranks[2].count_exchange();
  EXPECT_EQ(ranks[2].cause(), "rank 1 answers but has not joined the exchange");
}

TEST(RankWatch, NamesRanksThatNeverBeat) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  RankWatch first(store, {.rank = 0, .size = 4}, {.beat = kBeat});
  RankWatch third(store, {.rank = 2, .size = 4}, {.beat = kBeat});
  EXPECT_EQ(third.cause(), "ranks 1 and 3 do not answer");
}

TEST(RankWatch, KnowsWhetherRankZeroReportsTheSameError) {
  Watches ranks(3);
  EXPECT_FALSE(ranks[0].leave("no such file"));
  EXPECT_TRUE(ranks[1].leave("no such file"));
  EXPECT_FALSE(ranks[2].leave("another error"));
}

TEST(RankWatch, NamesTheRankThatLeft) {
  Watches ranks(2);
  ranks.watches.pop_back();
  EXPECT_EQ(ranks[0].cause(), "rank 1 has left the run");
}

TEST(RankWatch, RankZeroStaysUntilTheOthersKnow) {
  Watches ranks(2);
  ranks[0].leave("the disk is full");
  std::thread first([&] { ranks.watches[0].reset(); });
  EXPECT_EQ(ranks[1].cause(), "rank 0 ended with an error: the disk is full");
  ranks.watches.pop_back();
  first.join();
}

// A store that fails, as one does whose server has died.
class BrokenStore : public c10d::HashStore {
 public:
  void set(const std::string&, const std::vector<uint8_t>&) override { throw std::runtime_error("gone"); }
};

TEST(RankWatch, CallsWhenARankStaysLost) {
  for (const auto& [rank, broken] : {std::pair(0, false), std::pair(1, false), std::pair(1, true)}) {
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
    if (broken) store = c10::make_intrusive<BrokenStore>();
    std::promise<std::string> promise;
    std::future<std::string> cause = promise.get_future();
    RankWatch watch(store, {.rank = rank, .size = 2, .timeout = std::chrono::milliseconds(300)},
                    {.beat = kShortBeat, .on_lost = [&](const std::string& why) { promise.set_value(why); }});
    const std::string expected = "rank " + std::to_string(1 - rank) + " does not answer";
    EXPECT_EQ(watch.explain_failure(), expected);
    ASSERT_EQ(cause.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_EQ(cause.get(), expected);
  }
}

}  // namespace
}  // namespace gluon::lab
