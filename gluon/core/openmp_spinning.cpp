#include "gluon/core/openmp_spinning.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <utility>

namespace gluon {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{100};
// Shares of an interval that all threads together wait for a core: about half beside one busy process, next to nothing
// on an idle machine. Between the two values nothing changes. A program that starts its threads waits for one or two
// intervals, with nobody beside it.
constexpr double kContended = 0.15, kQuiet = 0.03;
constexpr int kContendedIntervals = 4, kQuietIntervals = 10;  // in a row

// Waits this long; true, and at once, when the thread is to end.
bool ends_within(steady_clock::duration time, const std::stop_token& stop) {
  std::mutex mutex;              // protects nothing; wait_for() asks for a lock
  std::unique_lock lock(mutex);  // cppcheck-suppress localMutex
  return std::condition_variable_any().wait_for(lock, stop, time, [&stop] { return stop.stop_requested(); });
}

void watch(const std::stop_token& stop, int threads) {
  std::optional<BriefSpinning> brief;
  int contended_intervals = 0, quiet_intervals = 0;
  auto before = time_without_core().value_or(nanoseconds(0));
  auto start = steady_clock::now();
  while (!ends_within(kInterval, stop)) {
    const auto waited = time_without_core().value_or(before);
    const auto now = steady_clock::now();
    const double share = std::chrono::duration<double>(waited - before) / (now - start);
    before = waited;
    start = now;
    contended_intervals = share > kContended ? contended_intervals + 1 : 0;
    quiet_intervals = share < kQuiet ? quiet_intervals + 1 : 0;
    if (contended_intervals >= kContendedIntervals && !brief) brief.emplace(threads);
    if (quiet_intervals >= kQuietIntervals) brief.reset();
  }
}

}  // namespace

std::optional<nanoseconds> time_without_core() {
  std::error_code error;
  std::int64_t total = 0;
  bool known = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::int64_t running = 0, waiting = 0;
    std::ifstream file(task.path() / "schedstat");  // absent if the thread has just ended
    if (file >> running >> waiting) {
      total += waiting;
      known = true;
    }
  }
  return known ? std::optional(nanoseconds(total)) : std::nullopt;
}

// The team belongs to a thread of its own and goes with it.
BriefSpinning::BriefSpinning(int threads) {
  const int team = std::max(2, omp_get_num_procs() - threads + 2);
  std::promise<void> spawned;
  const std::future<void> ready = spawned.get_future();
  owner_ = std::jthread([team, spawned = std::move(spawned)](const std::stop_token& stop) mutable {
    std::atomic<int> started = 0;  // an empty region would be optimised away
#pragma omp parallel num_threads(team)
    ++started;
    spawned.set_value();
    while (!ends_within(std::chrono::hours(1), stop)) {
    }
  });
  ready.wait();
}

SpinningLimit::SpinningLimit(int threads) {
  const bool user_decides = std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr;
  if (threads > 1 && !user_decides && time_without_core()) watcher_ = std::jthread(watch, threads);
}

}  // namespace gluon
