#include "gluon/core/openmp_spinning.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

namespace gluon {
namespace {

using namespace std::chrono_literals;

// libgomp spins 300 000 rounds by default, which are at least 1 ms, and 100 rounds when it has too few cores.
constexpr double kLong = 0.5e-3, kBrief = 0.2e-3;

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// CPU time that the second OpenMP thread uses while it waits for the next parallel region.
double seconds_spun() {
  clockid_t clock{};
  double before = 0;
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) {
    pthread_getcpuclockid(pthread_self(), &clock);
    before = cpu_seconds(clock);
  }
  std::this_thread::sleep_for(50ms);
  return cpu_seconds(clock) - before;
}

// Of several spins: other processes of the machine cut some short, and a thread may still be in an earlier long one.
double longest_spin() {
  double longest = 0;
  for (int i = 0; i < 20 && longest <= kLong; ++i) longest = std::max(longest, seconds_spun());
  return longest;
}

double shortest_spin() {
  double shortest = kLong;
  for (int i = 0; i < 20 && shortest >= kBrief; ++i) shortest = std::min(shortest, seconds_spun());
  return shortest;
}

// Two threads that compete for one core.
class CrowdedCore {
 public:
  CrowdedCore() {
    for (std::jthread& thread : threads_) {
      thread = std::jthread([this](const std::stop_token& stop) {
        int none = -1;
        core_.compare_exchange_strong(none, sched_getcpu());
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(core_, &only);
        sched_setaffinity(0, sizeof only, &only);
        while (!stop.stop_requested()) {
        }
      });
    }
  }

 private:
  std::atomic<int> core_ = -1;
  std::jthread threads_[2];
};

class OpenMPSpinning : public testing::Test {
 protected:
  void SetUp() override {
    if (omp_get_num_procs() < 2) GTEST_SKIP() << "needs two cores";
    if (!time_without_core()) GTEST_SKIP() << "/proc/self/task/*/schedstat is missing";
    if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) GTEST_SKIP() << "the environment decides";
  }
};

TEST_F(OpenMPSpinning, TimeWithoutCoreGrowsWhenThreadsShareACore) {
  const CrowdedCore crowded;
  const auto before = *time_without_core();
  std::this_thread::sleep_for(200ms);
  EXPECT_GT(*time_without_core() - before, 50ms);
}

TEST_F(OpenMPSpinning, BriefSpinningLastsAsLongAsItsObject) {
  EXPECT_GT(longest_spin(), kLong);
  {
    const BriefSpinning brief(2);
    EXPECT_LT(shortest_spin(), kBrief);
  }
  EXPECT_GT(longest_spin(), kLong);
}

TEST_F(OpenMPSpinning, LimitStartsWhenThreadsWaitForCores) {
  const SpinningLimit limit(2);
  ASSERT_TRUE(limit.active());
  const CrowdedCore crowded;
  double spun = 1;
  for (int i = 0; i < 100 && spun >= kBrief; ++i) spun = seconds_spun();
  EXPECT_LT(spun, kBrief);
}

TEST_F(OpenMPSpinning, EnvironmentOfTheUserWins) {
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    setenv(name, "1", 1);
    EXPECT_FALSE(SpinningLimit(2).active()) << name;
    unsetenv(name);
  }
  EXPECT_FALSE(SpinningLimit(1).active());
}

}  // namespace
}  // namespace gluon
