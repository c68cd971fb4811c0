#include "lab/train/prefetch.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "lab/data/token_dataset.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

constexpr int64_t kSize = 3;
const torch::Device kCpu(torch::kCPU);

std::shared_ptr<const Dataset> tokens(int64_t context = 4) {
  std::string text;
  for (int64_t i = 0; i < 101 * context; ++i) text += static_cast<char>('a' + i * i % 23);
  return std::make_shared<TokenDataset>(TokenDataset::from_text(text, "memory", {.context = context}));
}

void expect_same(const Batch& batch, const Batch& expected) {
  EXPECT_TRUE(batch.inputs.cpu().equal(expected.inputs));
  EXPECT_TRUE(batch.targets.cpu().equal(expected.targets));
}

/// Batches that hold their index; calls `hook` first and records which thread made which batch.
class Watched : public Dataset {
 public:
  explicit Watched(std::function<void(int64_t)> hook = [](int64_t) {}) : hook_(std::move(hook)) {}

  Batch train_batch(int64_t index, int64_t size) const override {
    {
      const std::lock_guard lock(mutex_);
      makers_[index].push_back(std::this_thread::get_id());
    }
    hook_(index);
    return {at::full({size, 2}, index, at::kLong), at::full({size}, index, at::kLong)};
  }
  std::vector<Batch> validation(int64_t /*size*/) const override { return {}; }
  int64_t train_examples() const override { return 100; }
  int64_t tokens_per_example() const override { return 1; }
  int64_t classes() const override { return 100; }
  std::string describe() const override { return "indices"; }

  /// How often this thread made a batch, and how often others did.
  std::pair<int64_t, int64_t> made(int64_t index) const {
    const std::lock_guard lock(mutex_);
    const int64_t here = std::ranges::count(makers_[index], std::this_thread::get_id());
    return {here, std::ssize(makers_[index]) - here};
  }

 private:
  std::function<void(int64_t)> hook_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::vector<std::thread::id>> makers_;
};

/// Waits until `flag` is set, ten seconds at most; returns whether it was.
bool wait_for(const std::atomic<bool>& flag) {
  for (int i = 0; i < 10000 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag;
}

int64_t value(const Batch& batch) { return batch.targets[0].item<int64_t>(); }

TEST(Prefetcher, AnyOrderGivesTheBatchesOfTheDataset) {
  const auto dataset = tokens();
  for (const bool ahead : {false, true}) {
    Prefetcher prefetcher(dataset, kSize, kCpu, ahead);
    std::vector<std::pair<int64_t, Batch>> batches;
    for (const int64_t index : {0, 1, 2, 3, 3, 3, 4, 9, 10, 200, 7, 6, 5, 6, 8, 7, 0, 0, 1}) {
      batches.emplace_back(index, prefetcher.get(index));
    }
    // Later batches do not change earlier ones.
    for (const auto& [index, batch] : batches) expect_same(batch, dataset->train_batch(index, kSize));
  }
}

TEST(Prefetcher, ValidationDuringPreparationIsTheSame) {
  const auto dataset = tokens();
  const std::vector<Batch> expected = dataset->validation(kSize);
  Prefetcher prefetcher(dataset, kSize, kCpu, true);
  for (int64_t i = 0; i < 50; ++i) {
    expect_same(prefetcher.get(i), dataset->train_batch(i, kSize));
    const std::vector<Batch> validation = dataset->validation(kSize);
    ASSERT_EQ(validation.size(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) expect_same(validation[k], expected[k]);
  }
}

TEST(Prefetcher, TheCpuMakesBatchesOnRequestOnly) {
  const auto dataset = std::make_shared<Watched>();
  Prefetcher prefetcher(dataset, kSize, kCpu, false);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(value(prefetcher.get(i)), i);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(dataset->made(i), std::pair(int64_t{i < 3}, int64_t{0}));
}

TEST(Prefetcher, AnotherThreadMakesEachNextBatchOnce) {
  const auto dataset = std::make_shared<Watched>();
  {
    Prefetcher prefetcher(dataset, kSize, kCpu, true);
    // 2 twice: a step that follows a look ahead requests its batch again.
    for (const int64_t i : {0, 1, 2, 2, 3}) EXPECT_EQ(value(prefetcher.get(i)), i);
  }
  for (int64_t i = 0; i <= 4; ++i) {
    EXPECT_EQ(dataset->made(i), std::pair(int64_t{i == 0 || i == 2}, int64_t{i != 0})) << i;
  }
}

TEST(Prefetcher, DoesNotWaitForTheNextBatch) {
  std::atomic<bool> returned = false;
  std::atomic<bool> overlapped = false;
  const auto dataset = std::make_shared<Watched>([&](int64_t index) {
    if (index == 1) overlapped = wait_for(returned);
  });
  Prefetcher prefetcher(dataset, kSize, kCpu, true);
  EXPECT_EQ(value(prefetcher.get(0)), 0);
  returned = true;
  EXPECT_EQ(value(prefetcher.get(1)), 1);
  EXPECT_TRUE(overlapped);
}

TEST(Prefetcher, AnErrorReachesTheCallThatNeedsTheBatch) {
  for (const bool ahead : {false, true}) {
    const auto dataset =
        std::make_shared<Watched>([](int64_t index) { GLUON_CHECK(index != 3, "batch ", index, " is broken"); });
    Prefetcher prefetcher(dataset, kSize, kCpu, ahead);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(value(prefetcher.get(i)), i);
    EXPECT_INPUT_ERROR(prefetcher.get(3), "batch 3 is broken");
    EXPECT_INPUT_ERROR(prefetcher.get(3), "batch 3 is broken");
    // Batch 3 is prepared after 2 and never requested.
    for (const int64_t i : {4, 5, 2, 7, 8, 2}) EXPECT_EQ(value(prefetcher.get(i)), i);
  }
}

TEST(Prefetcher, TheDestructorWaitsForTheBatchInPreparation) {
  std::atomic<bool> started = false;
  std::atomic<bool> destroying = false;
  std::atomic<bool> finished = false;
  const auto dataset = std::make_shared<Watched>([&](int64_t index) {
    if (index == 0) return;
    started = true;
    wait_for(destroying);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    finished = true;
  });
  {
    Prefetcher prefetcher(dataset, kSize, kCpu, true);
    prefetcher.get(0);
    EXPECT_TRUE(wait_for(started));
    destroying = true;
  }
  EXPECT_TRUE(finished);
}

TEST(Prefetcher, DroppedPinnedMemoryIsNotReusedBeforeItsCopy) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const auto dataset = tokens(1024);
  Prefetcher prefetcher(dataset, 64, torch::Device("cuda"), true);
  at::Tensor work = at::full({4096, 4096}, 1.0 / 4096, at::TensorOptions("cuda"));
  std::vector<Batch> batches;
  // Copies queue behind the products, so their pinned memory is dropped long before they run.
  for (int64_t i = 0; i < 30; ++i) {
    work = work.mm(work);
    batches.push_back(prefetcher.get(i));
  }
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_TRUE(batches[i].inputs.is_cuda() && batches[i].targets.is_cuda());
    expect_same(batches[i], dataset->train_batch(i, 64));
  }
}

TEST(Prefetcher, CopiesDoNotWaitForTheGpu) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  Prefetcher prefetcher(tokens(1024), 64, torch::Device("cuda"), true);
  at::Tensor work = at::full({4096, 4096}, 1.0 / 4096, at::TensorOptions("cuda"));
  at::Tensor product = work.mm(work);
  for (int64_t i = 0; i < 5; ++i) prefetcher.get(i);  // both allocators have their blocks now
  for (int i = 0; i < 200; ++i) at::mm_out(product, work, work);
  c10::Event done(at::kCUDA);
  done.record(cuda.getStream(cuda.getDevice()));
  for (int64_t i = 5; i < 10; ++i) prefetcher.get(i);
  EXPECT_FALSE(done.query());  // a copy from unpinned memory would have waited for all products
}

}  // namespace
}  // namespace gluon::lab
