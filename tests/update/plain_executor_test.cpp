#include "gluon/update/plain_executor.h"

#include <ATen/ATen.h>

#include "tests/expect_error.h"

namespace gluon {
namespace {

LayerBatch batch_of(std::size_t count, const Momentum& momentum, std::initializer_list<std::size_t> without = {}) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < count; ++i) {
    layers.push_back({join("layer", i), at::zeros({4, 8})});
    if (std::find(without.begin(), without.end(), i) == without.end()) {
      layers.back().parameter.mutable_grad() = at::ones({4, 8});
    }
  }
  const Rule rule{.norm = "max_entry"};
  return {route(layers, Geometry({rule})).batches.front(), rule, momentum};
}

std::vector<std::size_t> run_sizes(const LayerBatch& batch, int64_t bytes) {
  std::vector<std::size_t> sizes;
  for (const auto& run : scratch_runs(batch, bytes)) sizes.push_back(run.size());
  return sizes;
}

constexpr int64_t kMatrixBytes = 4 * 8 * 4;

TEST(PlainExecutor, ScratchLimitsTheRuns) {
  const LayerBatch batch = batch_of(5, Momentum::ema(0.9));
  EXPECT_EQ(run_sizes(batch, 1 << 20), (std::vector<std::size_t>{5}));
  EXPECT_EQ(run_sizes(batch, 2 * kMatrixBytes), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(run_sizes(batch, 1), (std::vector<std::size_t>{1, 1, 1, 1, 1}));
}

TEST(PlainExecutor, InputBesideTheBufferCountsAsScratch) {
  EXPECT_EQ(run_sizes(batch_of(4, Momentum::nesterov(0.9)), 2 * kMatrixBytes), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(run_sizes(batch_of(4, Momentum::none()), 4 * kMatrixBytes), (std::vector<std::size_t>{2, 2}));
}

TEST(PlainExecutor, BlocksWithoutGradientAreLeftOut) {
  const LayerBatch batch = batch_of(6, Momentum::ema(0.9), {0, 3, 5});
  EXPECT_EQ(run_sizes(batch, 1 << 20), (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(scratch_runs(batch, 1 << 20)[1].front().name, "layer4");
  EXPECT_TRUE(run_sizes(batch_of(2, Momentum::none(), {0, 1}), 1 << 20).empty());
}

}  // namespace
}  // namespace gluon
