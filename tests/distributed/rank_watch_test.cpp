#include "gluon/distributed/rank_watch.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace gluon {
namespace {

// A silence is six beats. Where nobody may be silent it has to outlast a machine that stalls.
constexpr std::chrono::milliseconds kBeat{400}, kShortBeat{150};

// Ranks of one process, each with a watch, over a store in memory.
struct Watches {
  explicit Watches(int size) : store(c10::make_intrusive<c10d::HashStore>()) {
    for (int rank = 0; rank < size; ++rank) {
      watches.push_back(
          std::make_unique<RankWatch>(store, Ranks{.rank = rank, .size = size}, WatchOptions{.beat = kBeat}));
    }
  }
  ~Watches() {
    // The last one first: rank 0 waits for the others.
    while (!watches.empty()) watches.pop_back();
  }

  c10::intrusive_ptr<c10d::Store> store;
  std::vector<std::unique_ptr<RankWatch>> watches;
};

TEST(RankWatch, NamesTheRankThatFailed) {
  Watches ranks(3);
  ranks.watches[2]->fail("the disk is full\nand so on");
  EXPECT_EQ(ranks.watches[0]->cause(), "rank 2 ended with an error: the disk is full");
  EXPECT_EQ(ranks.watches[1]->cause(), "rank 2 ended with an error: the disk is full");
}

TEST(RankWatch, PassesOnWhyARankGaveUp) {
  Watches ranks(3);
  ranks.watches[1]->give_up("rank 7 does not answer");
  ranks.watches[1]->fail("what follows from it");
  EXPECT_EQ(ranks.watches[0]->cause(), "rank 7 does not answer");
  EXPECT_EQ(ranks.watches[2]->cause(), "rank 7 does not answer");
}

TEST(RankWatch, NamesTheRankThatIsBehind) {
  Watches ranks(3);
  ranks.watches[0]->count_exchange();
  ranks.watches[2]->count_exchange();
  EXPECT_EQ(ranks.watches[2]->cause(), "rank 1 answers but has not come to the exchange");
}

TEST(RankWatch, NamesRanksThatNeverBeat) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  RankWatch first(store, {.rank = 0, .size = 4}, {.beat = kBeat});
  RankWatch third(store, {.rank = 2, .size = 4}, {.beat = kBeat});
  EXPECT_EQ(third.cause(), "ranks 1 and 3 do not answer");
}

TEST(RankWatch, NamesTheFirstRankWhenThereIsNoNews) {
  RankWatch second(c10::make_intrusive<c10d::HashStore>(), {.rank = 1, .size = 2}, {.beat = kShortBeat});
  EXPECT_EQ(second.cause(), "rank 0 does not answer");
}

TEST(RankWatch, KnowsWhatTheFirstRankWillSay) {
  Watches ranks(2);
  ranks.watches[0]->fail("no such file");
  EXPECT_TRUE(ranks.watches[1]->first_fails_with("no such file"));
  EXPECT_FALSE(ranks.watches[1]->first_fails_with("another error"));
  EXPECT_FALSE(ranks.watches[0]->first_fails_with("no such file"));
}

TEST(RankWatch, NamesTheRankThatLeft) {
  Watches ranks(2);
  ranks.watches.pop_back();
  EXPECT_EQ(ranks.watches[0]->cause(), "rank 1 has left the run");
}

TEST(RankWatch, TheFirstRankStaysUntilTheOthersKnow) {
  Watches ranks(2);
  ranks.watches[0]->give_up("rank 7 does not answer");
  std::thread first([&] { ranks.watches[0].reset(); });
  EXPECT_EQ(ranks.watches[1]->cause(), "rank 7 does not answer");
  ranks.watches.pop_back();
  first.join();
}

TEST(RankWatch, CallsWhenARankStaysLost) {
  for (const int silent : {0, 1}) {
    std::promise<std::string> said;
    std::future<std::string> heard = said.get_future();
    const Ranks ranks{.rank = 1 - silent, .size = 2, .timeout = std::chrono::milliseconds(300)};
    RankWatch watch(
        c10::make_intrusive<c10d::HashStore>(), ranks,
        {.beat = kShortBeat, .on_lost = [&](const std::string& cause) { said.set_value(cause); }});
    ASSERT_EQ(heard.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_EQ(heard.get(), "rank " + std::to_string(silent) + " does not answer");
  }
}

}  // namespace
}  // namespace gluon
