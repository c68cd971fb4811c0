#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "gluon/distributed/collective.h"
#include "gluon/distributed/meeting.h"
#include "tests/distributed/processes.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(Gloo, AddsAndTells) {
  const std::vector<int> codes = run_ranks(3, [](const Ranks& ranks) {
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
    at::Tensor turned = square.t();  // travels as a copy
    group->all_reduce(turned)->wait();
    EXPECT_TRUE(square.equal(3 * at::arange(6, at::kFloat).view({2, 3}) + 3));
    check_agreement(*group, "config", "the same");
    EXPECT_INPUT_ERROR(check_agreement(*group, "config", ranks.rank == 2 ? "other" : "same"),
                       "ranks differ in their config: rank 0 has 'same', rank 2 has 'other'");
    const std::string batch = ranks.rank == 1 ? "8 x 1" : "16 x 1";
    EXPECT_INPUT_ERROR(check_agreement(*group, {{"batch", batch}, {"seed", "1"}}),
                       "ranks differ in their batch: rank 0 has '16 x 1', rank 1 has '8 x 1'");
    std::map<std::string, std::string> parts{{"seed", "1"}};
    if (ranks.rank == 2) parts["width"] = std::string(200, '3');
    EXPECT_INPUT_ERROR(check_agreement(*group, parts),
                       "ranks differ in their width: rank 0 has 'nothing', rank 2 has '3");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

// Runs `end` in rank `who` of three; the others must throw RankLost with `text` and come to an end.
void expect_lost(int who, const std::function<void(Collective&)>& end, const std::string& text,
                 std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int> codes = run_ranks(
      3,
      [&](const Ranks& ranks) {
        const CollectivePtr group = make_collective("gloo", ranks);
        at::Tensor x = at::ones({1000});
        group->all_reduce(x)->wait();
        if (ranks.rank == who) return end(*group);
        try {
          group->all_reduce(x)->wait();
          ADD_FAILURE() << "an exchange with a lost rank ended";
        } catch (const RankLost& lost) {
          EXPECT_NE(std::string(lost.what()).find(text), std::string::npos) << lost.what();
        }
      },
      timeout);
  codes[static_cast<std::size_t>(who)] = 0;
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0})) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

constexpr std::chrono::seconds kLong{60}, kShort{3};

TEST(Gloo, NamesTheRankThatDied) {
  expect_lost(
      1, [](Collective&) { ::raise(SIGKILL); }, "rank 1 does not answer", kLong);
  expect_lost(
      0, [](Collective&) { ::raise(SIGKILL); }, "rank 0 does not answer", kLong);
}

TEST(Gloo, NamesTheRankThatFailed) {
  const auto fail = [](Collective& group) { group.leave("no space left"); };
  expect_lost(2, fail, "rank 2 ended with an error: no space left", kLong);
  expect_lost(0, fail, "rank 0 ended with an error: no space left", kLong);
}

TEST(Gloo, NamesTheRankThatIsBusyWithOtherThings) {
  const auto sleep = [](Collective&) { std::this_thread::sleep_for(std::chrono::seconds(20)); };
  expect_lost(1, sleep, "rank 1 answers but has not come to the exchange", kShort);
}

std::set<pid_t> threads() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(std::stoi(entry.path().filename()));
  return found;
}

// Gloo writes to a rank that has just died before it learns of it: the kernel then sends its thread a SIGPIPE.
TEST(Gloo, OutlivesABrokenPipe) {
  const std::vector<int> codes = run_ranks(2, [](const Ranks& ranks) {
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
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

void expect_missing(const Ranks& ranks, const std::string& message) {
  try {
    make_collective("gloo", ranks);
    ADD_FAILURE() << "one rank met " << ranks.size;
  } catch (const RankLost& lost) {
    EXPECT_NE(std::string(lost.what()).find(message), std::string::npos) << lost.what();
  }
}

TEST(Gloo, NamesRanksThatDoNotCome) {
  expect_missing(
      {.rank = 0, .size = 3, .master_port = free_port(), .timeout = std::chrono::milliseconds(1500)},
      "rank 0: ranks 1 and 2 did not come to 127.0.0.1:");
}

TEST(Gloo, RefusesRanksThatDoNotFitEachOther) {
  const std::vector<int> sizes = run_ranks(2, [](Ranks ranks) {
    if (ranks.rank == 1) ranks.size = 3;
    EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "WORLD_SIZE");
  });
  EXPECT_EQ(sizes, (std::vector<int>{0, 0}));
  const std::vector<int> twins = run_ranks(3, [](Ranks ranks) {
    if (ranks.rank == 2) ranks.rank = 1;
    EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "have RANK 1");
  });
  EXPECT_EQ(twins, (std::vector<int>{0, 0, 0}));
}

TEST(Gloo, RefusesWhereItCannotMeet) {
  Ranks ranks{.size = 2, .master_address = "no such host"};
  EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "MASTER_ADDR 'no such host' is no host");
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, plain, size) == 0 && ::listen(socket, 1) == 0 &&
      ::getsockname(socket, plain, &size) == 0) {
    ranks.master_address = "127.0.0.1";
    ranks.master_port = ntohs(address.sin6_port);
    EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "is in use on this machine");
  }
  ::close(socket);
}

c10d::TCPStoreOptions launchers_store(uint16_t port, bool hold) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = hold;
  options.waitWorkers = false;
  return options;
}

// As torchrun: a process that is no rank has a store at the port, and starts all ranks again after a failure.
TEST(Gloo, MeetsBesideTheStoreOfALauncher) {
  const std::vector<int> codes = run_ranks(3, [](Ranks ranks) {
    const bool launcher = ranks.rank == 2;
    c10d::TCPStore store("127.0.0.1", launchers_store(ranks.master_port, launcher));
    ranks.size = 2;
    for (const char* key : {"gluon/port/0", "gluon/port/1"}) {
      if (launcher) break;
      ranks.port_key = key;
      at::Tensor x = at::ones({3});
      make_collective("gloo", ranks)->all_reduce(x)->wait();
      EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
    }
    store.add("done", 1);
    while (launcher && store.add("done", 0) < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(Gloo, SaysThatTheLauncherOrTheFirstRankIsMissing) {
  Ranks ranks{.rank = 1, .size = 2, .master_port = free_port(), .timeout = std::chrono::milliseconds(1500)};
  ranks.port_key = "gluon/port/0";
  expect_missing(ranks, "rank 1: torchrun does not answer at 127.0.0.1:");
  const c10d::TCPStore store("127.0.0.1", launchers_store(ranks.master_port, true));
  expect_missing(ranks, "rank 1: rank 0 did not come to torchrun's store at 127.0.0.1:");
}

TEST(Gloo, MeetsOverNamesAndIpv6) {
  for (const char* master : {"localhost", "::1"}) {
    try {
      (void)address_towards(master, 1);
    } catch (const InputError&) {
      continue;  // this machine has no such address
    }
    const std::vector<int> codes = run_ranks(2, [&](Ranks ranks) {
      ranks.master_address = master;
      at::Tensor x = at::ones({3});
      make_collective("gloo", ranks)->all_reduce(x)->wait();
      EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0})) << master;
  }
}

}  // namespace
}  // namespace gluon
