#include "gluon/distributed/collective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "gluon/check.h"
#include "gluon/distributed/sharding.h"
#include "tests/distributed/processes.h"

namespace gluon {
namespace {

TEST(Single, ReturnsAtOnce) {
  const CollectivePtr one = make_collective("single", {});
  at::Tensor x = at::ones({3});
  one->all_reduce(x)->wait();
  one->reduce(x, 0)->wait();
  one->broadcast(x, 0)->wait();
  EXPECT_TRUE(x.equal(at::ones({3})));
  check_agreement(*one, "config", "a");
}

TEST(MakeCollective, RefusesWhatItCannotMake) {
  EXPECT_THROW(make_collective("mpi", {}), InputError);
  EXPECT_THROW(make_collective("single", {.rank = 0, .size = 2}), InputError);
  EXPECT_THROW(make_collective("gloo", {.rank = 2, .size = 2}), InputError);
}

class Environment : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(Environment, SaysTheRanks) {
  EXPECT_EQ(Ranks::from_environment().size, 1);
  ::setenv("RANK", "3", 1), ::setenv("WORLD_SIZE", "4", 1), ::setenv("MASTER_PORT", "1234", 1);
  ::setenv("LOCAL_RANK", "1", 1), ::setenv("MASTER_ADDR", "10.0.0.1", 1);
  const Ranks ranks = Ranks::from_environment();
  EXPECT_EQ(ranks.rank, 3);
  EXPECT_EQ(ranks.size, 4);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.master_address, "10.0.0.1");
  EXPECT_EQ(ranks.master_port, 1234);
}

TEST_F(Environment, SlurmSaysThemToo) {
  ::setenv("SLURM_PROCID", "1", 1), ::setenv("SLURM_NTASKS", "2", 1);
  EXPECT_EQ(Ranks::from_environment().rank, 1);
}

TEST_F(Environment, RefusesWhatDoesNotFit) {
  ::setenv("RANK", "1", 1);
  EXPECT_THROW(Ranks::from_environment(), InputError);
  ::setenv("WORLD_SIZE", "1", 1);
  EXPECT_THROW(Ranks::from_environment(), InputError);
  ::setenv("WORLD_SIZE", "two", 1);
  EXPECT_THROW(Ranks::from_environment(), InputError);
}

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
    check_agreement(*group, "config", "the same");
    EXPECT_THROW(check_agreement(*group, "config", ranks.rank == 2 ? "other" : "same"), InputError);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(Gloo, NamesTheRankThatDied) {
  const std::vector<int> codes = run_ranks(3, [](const Ranks& ranks) {
    const CollectivePtr group = make_collective("gloo", ranks);
    at::Tensor x = at::ones({1000});
    group->all_reduce(x)->wait();
    if (ranks.rank == 1) ::raise(SIGKILL);
    try {
      group->all_reduce(x)->wait();
      ADD_FAILURE() << "an exchange with a dead rank ended";
    } catch (const RankLost& lost) {
      EXPECT_NE(std::string(lost.what()).find("rank 1 does not answer"), std::string::npos) << lost.what();
    }
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL, 0}));
}

TEST(Gloo, DoesNotWaitForeverForRanksThatDoNotCome) {
  const Ranks ranks{
      .rank = 0, .size = 2, .master_port = free_port(), .timeout = std::chrono::milliseconds(1500)};
  EXPECT_THROW(make_collective("gloo", ranks), RankLost);
}

TEST(Sharding, BalancesTheCosts) {
  const std::vector<double> costs{1, 8, 3, 3, 2, 7};
  const std::vector<int> owners = assign_owners(costs, 3);
  std::vector<double> loads(3);
  for (std::size_t i = 0; i < costs.size(); ++i) loads[static_cast<std::size_t>(owners[i])] += costs[i];
  EXPECT_EQ(loads, (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(assign_owners(std::vector<double>{5}, 4), (std::vector<int>{0}));
}

}  // namespace
}  // namespace gluon
