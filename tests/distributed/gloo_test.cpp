#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
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

// What a scanner of ports sends, and connections that say nothing or never come to an end.
class Strangers {
 public:
  explicit Strangers(uint16_t port) : port_(port) {}

  /// Waits for the server, which may start later, and leaves the connections open.
  void come(int copies = 1) {
    const std::string kinds[] = {"",
                                 std::string(8, '\0'),
                                 std::string(1, '\0'),
                                 "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                 std::string(5000, '\xff'),
                                 std::string(48, 'x'),
                                 "\x16\x03\x01"};
    for (int i = 0; i < copies; ++i) {
      for (const std::string& bytes : kinds) send(bytes);
    }
  }
  void send(const std::string& bytes) {
    const int stranger = connected();
    (void)::send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    sockets_.push_back(stranger);
  }
  ~Strangers() {
    for (const int stranger : sockets_) ::close(stranger);
  }

 private:
  int connected() const {
    for (int tries = 0; tries < 1000; ++tries) {
      const int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return stranger;
      ::close(stranger);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }

  uint16_t port_;
  std::vector<int> sockets_;
};

TEST(Gloo, StrangersDoNotStopAStart) {
  for (const char* secret : {"", "sixteen letters!"}) {
    expect_ranks(3, [&](Ranks ranks) {
      Strangers strangers(ranks.master_port);
      ranks.secret = secret;
      std::optional<std::thread> crowd;
      if (ranks.rank == 1) strangers.come(3);  // before this rank joins
      if (ranks.rank == 2) crowd.emplace([&] { strangers.come(60); });
      const CollectivePtr group = make_collective("gloo", ranks);
      at::Tensor x = at::ones({3});
      group->all_reduce(x)->wait();
      EXPECT_TRUE(x.equal(at::full({3}, 3.0)));
      if (crowd) crowd->join();
      group->all_reduce(x)->wait();  // nobody leaves before the crowd has been there
    });
  }
}

TEST(Gloo, NeedsTheSameSecret) {
  expect_ranks(2, [](Ranks ranks) {
    ranks.timeout = std::chrono::seconds(5);
    ranks.secret = ranks.rank == 0 ? "the secret of rank 0" : "another secret, as long";
    if (ranks.rank == 0) return expect_rank_lost([&] { make_collective("gloo", ranks); }, "rank 1 did not join");
    EXPECT_INPUT_ERROR(make_collective("gloo", ranks), "rank 1: this rank and rank 0 differ in GLUON_SECRET");
  });
}

TEST(Gloo, OtherMachinesNeedASecret) {
  const Ranks ranks{.rank = 1, .size = 2, .master_address = "192.0.2.7"};
  EXPECT_INPUT_ERROR(make_collective("gloo", ranks),
                     "MASTER_ADDR 192.0.2.7 is open to other machines: set GLUON_SECRET");
  EXPECT_INPUT_ERROR(make_collective("gloo", {.size = 2, .secret = "short"}),
                     "GLUON_SECRET must have at least 16 characters, got 5");
}

// The addresses of this process's listening sockets as the kernel writes them: "0100007F:1F90".
std::set<std::string> listening() {
  std::set<std::string> inodes, addresses;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() > 9 && word[3] == "0A" && inodes.contains(word[9])) addresses.insert(word[1]);
    }
  }
  return addresses;
}

TEST(Gloo, ListensOnTheLoopbackOnly) {
  expect_ranks(2, [](const Ranks& ranks) {
    const CollectivePtr group = make_collective("gloo", ranks);
    const std::set<std::string> addresses = listening();
    EXPECT_EQ(addresses.empty(), ranks.rank != 0);
    for (const std::string& address : addresses) EXPECT_TRUE(address.starts_with("0100007F:")) << address;
    at::Tensor x = at::ones({3});
    group->all_reduce(x)->wait();
  });
}

// Connects to Gloo's ports before the ranks learn of them.
class StrangersFirst : public c10d::PrefixStore {
 public:
  explicit StrangersFirst(StorePtr store) : PrefixStore("", std::move(store)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    const std::set<std::string> before = key.starts_with("gloo/0/") ? listening() : std::set<std::string>();
    for (const std::string& address : before) {
      strangers_.emplace_back(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1), nullptr, 16)));
      strangers_.back().send(std::string(8, '\0'));
    }
    PrefixStore::set(key, value);
  }

 private:
  std::list<Strangers> strangers_;
};

TEST(Gloo, ConnectsAgainAfterAStrangerTookAPlace) {
  expect_ranks(3, [](const Ranks& ranks) {
    const auto meet = [](const Ranks& all) {
      Meeting meeting = meet_at_store(all);
      meeting.store = c10::make_intrusive<StrangersFirst>(meeting.store);
      return meeting;
    };
    at::Tensor x = at::ones({3});
    make_collective("gloo", ranks, meet)->all_reduce(x)->wait();
    EXPECT_TRUE(x.equal(at::full({3}, 3.0)));
  });
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
