#include "gluon/distributed/collective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "gluon/core/check.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(Single, ReturnsAtOnce) {
  const CollectivePtr one = make_collective("single", {});
  at::Tensor x = at::ones({3});
  one->all_reduce(x)->wait();
  one->reduce(x, 0)->wait();
  one->broadcast(x, 0)->wait();
  EXPECT_TRUE(x.equal(at::ones({3})));
  check_agreement(*one, {{"config", "a"}});
}

TEST(MakeCollective, RejectsUnknownBackendsAndBadRanks) {
  EXPECT_INPUT_ERROR(make_collective("mpi", {}), "unknown backend 'mpi'; allowed are single, gloo, nccl");
  EXPECT_INPUT_ERROR(make_collective("single", {.rank = 0, .size = 2}), "'single' is for one rank, got 2");
  EXPECT_INPUT_ERROR(make_collective("gloo", {.rank = 2, .size = 2}), "the rank must be in 0..1, got 2");
}

class RanksFromEnvironment : public ::testing::Test {
 protected:
  // The ranks after these variables have been set, too; they last until the end of the test.
  Ranks with(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
      set_.insert(name);
    }
    return Ranks::from_environment();
  }
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }

 private:
  std::set<std::string> set_;
};

TEST_F(RanksFromEnvironment, ReadsTheVariables) {
  EXPECT_EQ(Ranks::from_environment().size, 1);
  const Ranks ranks = with(
      {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}});
  EXPECT_EQ(ranks.rank, 3);
  EXPECT_EQ(ranks.size, 4);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.master_address, "10.0.0.1");
  EXPECT_EQ(ranks.master_port, 1234);
  EXPECT_EQ(ranks.store_prefix, "");
}

TEST_F(RanksFromEnvironment, UsesTheStoreOfTorchrun) {
  with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(with({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).store_prefix, "");
  EXPECT_EQ(with({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}).store_prefix, "gluon/2");
}

TEST_F(RanksFromEnvironment, ReadsSlurm) {
  EXPECT_EQ(with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).size, 1) << "a batch script is one process";
  EXPECT_EQ(with({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}).rank, 1);
  EXPECT_INPUT_ERROR(with({{"SLURM_STEP_NUM_NODES", "2"}}), "MASTER_ADDR is not set");
}

TEST_F(RanksFromEnvironment, ReadsMpi) {
  EXPECT_EQ(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
  with({{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const Ranks ranks = with({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(ranks.rank, 2);
  EXPECT_EQ(ranks.local_rank, 0);
  EXPECT_INPUT_ERROR(with({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "MASTER_ADDR is not set");
}

TEST_F(RanksFromEnvironment, RejectsBadValues) {
  EXPECT_INPUT_ERROR(with({{"RANK", "1"}}), "RANK is set, WORLD_SIZE is not");
  EXPECT_INPUT_ERROR(with({{"WORLD_SIZE", "1"}}), "the rank must be in 0..0, got 1");
  EXPECT_INPUT_ERROR(with({{"WORLD_SIZE", "two"}}), "WORLD_SIZE must be a whole number, got 'two'");
  EXPECT_INPUT_ERROR(with({{"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
                     "MASTER_PORT must be in 1..65535, got 70000");
}

}  // namespace
}  // namespace gluon
