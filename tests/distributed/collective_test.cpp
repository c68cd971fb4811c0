#include "gluon/distributed/collective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

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
  check_agreement(*one, "config", "a");
}

TEST(MakeCollective, RejectsUnknownBackendsAndBadRanks) {
  EXPECT_INPUT_ERROR(make_collective("mpi", {}), "unknown backend 'mpi'; allowed are single, gloo, nccl");
  EXPECT_INPUT_ERROR(make_collective("single", {.rank = 0, .size = 2}), "'single' is for one rank, got 2");
  EXPECT_INPUT_ERROR(make_collective("gloo", {.rank = 2, .size = 2}), "the rank must be in 0..1, got 2");
}

class RanksFromEnvironment : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS",
          "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
          "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(RanksFromEnvironment, ReadsTheVariables) {
  EXPECT_EQ(Ranks::from_environment().size, 1);
  ::setenv("RANK", "3", 1), ::setenv("WORLD_SIZE", "4", 1), ::setenv("MASTER_PORT", "1234", 1);
  ::setenv("LOCAL_RANK", "1", 1), ::setenv("MASTER_ADDR", "10.0.0.1", 1);
  const Ranks ranks = Ranks::from_environment();
  EXPECT_EQ(ranks.rank, 3);
  EXPECT_EQ(ranks.size, 4);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.master_address, "10.0.0.1");
  EXPECT_EQ(ranks.master_port, 1234);
  EXPECT_EQ(ranks.store_prefix, "");
}

TEST_F(RanksFromEnvironment, UsesTheStoreOfTorchrun) {
  ::setenv("RANK", "0", 1), ::setenv("WORLD_SIZE", "1", 1);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1), ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  EXPECT_EQ(Ranks::from_environment().store_prefix, "");
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_EQ(Ranks::from_environment().store_prefix, "gluon/2");
}

TEST_F(RanksFromEnvironment, ReadsSlurm) {
  ::setenv("SLURM_PROCID", "0", 1), ::setenv("SLURM_NTASKS", "2", 1);
  EXPECT_EQ(Ranks::from_environment().size, 1) << "a batch script is one process";
  ::setenv("SLURM_PROCID", "1", 1), ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  EXPECT_EQ(Ranks::from_environment().rank, 1);
  ::setenv("SLURM_STEP_NUM_NODES", "2", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "MASTER_ADDR is not set");
}

TEST_F(RanksFromEnvironment, ReadsMpi) {
  ::setenv("PMI_RANK", "1", 1), ::setenv("PMI_SIZE", "2", 1);
  EXPECT_EQ(Ranks::from_environment().rank, 1);
  ::setenv("OMPI_COMM_WORLD_RANK", "2", 1), ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1), ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  EXPECT_EQ(Ranks::from_environment().rank, 2);
  EXPECT_EQ(Ranks::from_environment().local_rank, 0);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "MASTER_ADDR is not set");
}

TEST_F(RanksFromEnvironment, RejectsBadValues) {
  ::setenv("RANK", "1", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "RANK is set, WORLD_SIZE is not");
  ::setenv("WORLD_SIZE", "1", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "the rank must be in 0..0, got 1");
  ::setenv("WORLD_SIZE", "two", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "WORLD_SIZE must be a whole number, got 'two'");
  ::setenv("WORLD_SIZE", "2", 1), ::setenv("MASTER_PORT", "70000", 1);
  EXPECT_INPUT_ERROR(Ranks::from_environment(), "MASTER_PORT must be in 1..65535, got 70000");
}

}  // namespace
}  // namespace gluon
