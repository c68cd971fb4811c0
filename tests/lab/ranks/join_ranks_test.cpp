#include "lab/ranks/join_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/distributed/processes.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

// Ranks that die or do not join: tests/cli/ranks_fault_test.sh.

// Runs `end` in rank `who` of three; the others must throw RankLost with `text` and finish.
void expect_lost(int who, const std::function<void(Collective&)>& end, const std::string& text,
                 std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int> codes = run_ranks(
      3,
      [&](const Ranks& ranks) {
        const CollectivePtr group = join_ranks("gloo", ranks);
        at::Tensor x = at::ones({1000});
        group->all_reduce(x)->wait();
        if (ranks.rank == who) return end(*group);
        expect_rank_lost([&] { group->all_reduce(x)->wait(); }, text);
      },
      timeout);
  codes[static_cast<std::size_t>(who)] = 0;
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0})) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

constexpr std::chrono::seconds kLong{60}, kShort{3};

TEST(JoinRanks, NamesTheRankThatFailed) {
  const auto fail = [](Collective& group) { group.leave("no space left"); };
  expect_lost(2, fail, "rank 2 ended with an error: no space left", kLong);
  expect_lost(0, fail, "rank 0 ended with an error: no space left", kLong);
}

TEST(JoinRanks, NamesTheRankThatDoesNotJoinAnExchange) {
  const auto sleep = [](Collective&) { std::this_thread::sleep_for(std::chrono::seconds(20)); };
  expect_lost(1, sleep, "rank 1 answers but has not joined the exchange", kShort);
}

TEST(JoinRanks, RejectsRanksThatDoNotFitTogether) {
  expect_ranks(2, [](Ranks ranks) {
    if (ranks.rank == 1) ranks.size = 3;
    EXPECT_INPUT_ERROR(join_ranks("gloo", ranks), "WORLD_SIZE");
  });
  expect_ranks(3, [](Ranks ranks) {
    if (ranks.rank == 2) ranks.rank = 1;
    EXPECT_INPUT_ERROR(join_ranks("gloo", ranks), "two processes have RANK 1");
  });
}

// As with torchrun: a process that is not a rank serves a store at the port, and restarts all ranks after a failure.
TEST(JoinRanks, UsesTheStoreOfALauncher) {
  expect_ranks(3, [](Ranks ranks) {
    const bool launcher = ranks.rank == 2;
    c10d::TCPStoreOptions options;
    options.port = ranks.master_port;
    options.isServer = launcher;
    options.waitWorkers = false;
    c10d::TCPStore store("127.0.0.1", options);
    ranks.size = 2;
    for (const char* prefix : {"gluon/0", "gluon/1"}) {
      if (launcher) break;
      ranks.store_prefix = prefix;
      at::Tensor x = at::ones({3});
      join_ranks("gloo", ranks)->all_reduce(x)->wait();
      EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
    }
    store.add("done", 1);
    while (launcher && store.add("done", 0) < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
}

TEST(JoinRanks, ReportsThatTheLauncherIsMissing) {
  const Ranks ranks{.rank = 1,
                    .size = 2,
                    .master_port = free_port(),
                    .store_prefix = "gluon/0",
                    .timeout = std::chrono::milliseconds(1500)};
  expect_rank_lost([&] { join_ranks("gloo", ranks); }, "rank 1: the launcher does not answer at 127.0.0.1:");
}

}  // namespace
}  // namespace gluon::lab
