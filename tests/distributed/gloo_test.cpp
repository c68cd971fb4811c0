#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gluon/distributed/collective.h"
#include "gluon/distributed/store.h"
#include "tests/distributed/processes.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(Gloo, CollectivesReturnExpectedValues) {
  expect_ranks(3, [](const Ranks& ranks) {
    const CollectivePtr group = make_collective("gloo", ranks);
    at::Tensor x = at::full({5}, ranks.rank + 1.0);
    group->all_reduce(x)->wait();
    EXPECT_TRUE(x.equal(at::full({5}, 6.0)));
    at::Tensor y = at::full({2, 3}, ranks.rank + 1.0);
    group->reduce(y, 1)->wait();
    EXPECT_TRUE(ranks.rank != 1 || y.equal(at::full({2, 3}, 6.0)));
    at::Tensor z = at::full({4}, ranks.rank, at::kLong);
    group->broadcast(z, 2)->wait();
    EXPECT_TRUE(z.equal(at::full({4}, 2, at::kLong)));
    at::Tensor square = at::arange(6, at::kFloat).view({2, 3}) + ranks.rank;
    at::Tensor transposed = square.t();  // sent as a copy
    group->all_reduce(transposed)->wait();
    EXPECT_TRUE(square.equal(3 * at::arange(6, at::kFloat).view({2, 3}) + 3));
    EXPECT_FALSE(group->leave("nobody watches"));
  });
}

TEST(Gloo, AgreementNamesTheDifference) {
  expect_ranks(3, [](const Ranks& ranks) {
    const CollectivePtr group = make_collective("gloo", ranks);
    check_agreement(*group, {{"config", "the same"}});
    EXPECT_INPUT_ERROR(check_agreement(*group, {{"config", ranks.rank == 2 ? "other" : "same"}}),
                       "ranks differ in their config: rank 0 has 'same', rank 2 has 'other'");
    const std::string batch = ranks.rank == 1 ? "8 x 1" : "16 x 1";
    EXPECT_INPUT_ERROR(check_agreement(*group, {{"batch", batch}, {"seed", "1"}}),
                       "ranks differ in their batch: rank 0 has '16 x 1', rank 1 has '8 x 1'");
    std::map<std::string, std::string> parts{{"seed", "1"}};
    if (ranks.rank == 2) parts["width"] = std::string(200, '3');
    EXPECT_INPUT_ERROR(check_agreement(*group, parts),
                       "ranks differ in their width: rank 0 has 'nothing', rank 2 has '3");
  });
}

TEST(Gloo, ThrowsWhenARankDies) {
  const std::vector<int> codes = run_ranks(3, [](const Ranks& ranks) {
    const CollectivePtr group = make_collective("gloo", ranks);
    at::Tensor x = at::ones({1000});
    group->all_reduce(x)->wait();
    if (ranks.rank == 0) ::raise(SIGKILL);
    expect_rank_lost([&] { group->all_reduce(x)->wait(); },
                     "rank " + std::to_string(ranks.rank) + ": an exchange with the other ranks failed (");
  });
  EXPECT_EQ(codes, (std::vector<int>{128 + SIGKILL, 0, 0}));
}

std::set<pid_t> threads() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(std::stoi(entry.path().filename()));
  return found;
}

// Gloo may write to a rank that has just died: the kernel then sends SIGPIPE to its thread.
TEST(Gloo, SurvivesABrokenPipe) {
  expect_ranks(2, [](const Ranks& ranks) {
    const std::set<pid_t> own = threads();
    const CollectivePtr group = make_collective("gloo", ranks);
    int signalled = 0;
    for (const pid_t thread : threads())
      signalled += !own.contains(thread) && ::tgkill(::getpid(), thread, SIGPIPE) == 0;
    EXPECT_GT(signalled, 0);
    at::Tensor x = at::ones({3});
    group->all_reduce(x)->wait();
    EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
  });
}

TEST(Gloo, ReportsRanksThatDoNotJoin) {
  Ranks ranks{.rank = 0, .size = 2, .master_port = lab::free_port(), .timeout = std::chrono::milliseconds(1500)};
  const std::string place = "127.0.0.1:" + std::to_string(ranks.master_port) + " within 1.5 s";
  expect_rank_lost([&] { make_collective("gloo", ranks); }, "rank 0: rank 1 did not join at " + place);
  ranks.rank = 1;
  expect_rank_lost([&] { make_collective("gloo", ranks); }, "rank 1: rank 0 does not answer at " + place);
}

TEST(Gloo, RejectsAnUnknownHostAndAPortInUse) {
  Ranks ranks{.size = 2, .master_address = "no such host"};
  EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "MASTER_ADDR 'no such host' is not a known host");
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port = lab::free_port();
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore other("127.0.0.1", options);
  ranks.master_address = "127.0.0.1";
  EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "is in use on this machine");
}

TEST(Gloo, JoinsOverNamesAndIpv6) {
  for (const char* master : {"localhost", "::1"}) {
    try {
      (void)address_towards(master, 1);
    } catch (const InputError&) {
      continue;  // this machine has no such address
    }
    expect_ranks(2, [&](Ranks ranks) {
      ranks.master_address = master;
      at::Tensor x = at::ones({3});
      make_collective("gloo", ranks)->all_reduce(x)->wait();
      EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
    });
  }
}

}  // namespace
}  // namespace gluon
