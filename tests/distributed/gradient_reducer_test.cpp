// Gradients are sent to their owners during the backward pass, and add up to the same bits in any order.

#include "gluon/distributed/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "gluon/distributed/store.h"
#include "tests/distributed/processes.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

constexpr int kLayers = 3;

std::vector<Layer> make_layers() {
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back({"h." + std::to_string(i), at::ones({2, 2 + i}).set_requires_grad(true), Role::kHidden});
  }
  return layers;
}

at::Tensor numbers(const Layer& layer, int seed) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(layer.parameter.sizes(), generator, at::kFloat) *
         at::randn(layer.parameter.sizes(), generator, at::kFloat).mul(4).exp();
}

// Runs the backward pass of a loss whose gradient of layer i is numbers(layer, seed + i).
void backward(const std::vector<Layer>& layers, int seed, std::size_t first = 0) {
  at::Tensor loss = at::zeros({});
  for (std::size_t i = first; i < layers.size(); ++i) {
    loss = loss + (layers[i].parameter * numbers(layers[i], seed + static_cast<int>(i))).sum();
  }
  loss.backward();
}

// Counts the buckets that are sent.
struct Counter : RankMonitor {
  void count_exchange() override { ++sent; }
  std::string explain_failure() override { return "a test failed"; }
  bool leave(const std::string&) override { return false; }
  int sent = 0;
};

const std::vector<int> kOwners{0, 1, 0};

TEST(GradientReducer, SendsBucketsDuringTheLastBackwardPass) {
  expect_ranks(2, [](const Ranks& ranks) {
    const std::vector<Layer> layers = make_layers();
    const auto counter = std::make_shared<Counter>();
    const auto meet = [counter](const Ranks& ranks) { return Meeting{meet_at_store(ranks).store, counter}; };
    GradientReducer reducer(layers, kOwners, make_collective("gloo", ranks, meet), {.bucket_bytes = 1});
    reducer.begin(2);
    backward(layers, 10 * ranks.rank);
    EXPECT_EQ(counter->sent, 0);
    backward(layers, 100 + 10 * ranks.rank);
    EXPECT_EQ(counter->sent, kLayers);
    reducer.finish();
    EXPECT_EQ(counter->sent, kLayers);
    for (int i = 0; i < kLayers; ++i) {
      const Layer& layer = layers[static_cast<std::size_t>(i)];
      if (kOwners[static_cast<std::size_t>(i)] != ranks.rank) continue;
      at::Tensor mean = at::zeros_like(layer.parameter);
      for (const int seed : {0, 10, 100, 110}) mean += numbers(layer, seed + i) / 2;
      EXPECT_TRUE(layer.parameter.grad().allclose(mean, 1e-5)) << layer.name;
    }
  });
}

TEST(GradientReducer, RanksWithoutAGradientCountAsZeros) {
  expect_ranks(2, [](const Ranks& ranks) {
    const std::vector<Layer> layers = make_layers();
    GradientReducer reducer(layers, kOwners, make_collective("gloo", ranks), {.mean = false});
    for (const bool announced : {true, false}) {
      for (const Layer& layer : layers) at::Tensor(layer.parameter).mutable_grad() = at::Tensor();
      if (announced) reducer.begin(1);
      backward(layers, 0, ranks.rank == 0 ? 2 : 1);  // only rank 1 has a gradient of layer 1
      reducer.finish();
      EXPECT_FALSE(layers[0].parameter.grad().defined());
      const std::size_t mine = ranks.rank == 0 ? 2 : 1;
      const at::Tensor expected = numbers(layers[mine], static_cast<int>(mine)) * (ranks.rank == 0 ? 2 : 1);
      EXPECT_TRUE(layers[mine].parameter.grad().allclose(expected));
    }
  });
}

// Six parts, added by one rank and by three.
TEST(GradientReducer, ExactSumsAreTheSameOnAnyNumberOfRanks) {
  expect_ranks(3, [](const Ranks& ranks) {
    constexpr int kParts = 6;
    const ReductionOptions options{.mean = false, .exact = true};
    const auto sum = [&](const CollectivePtr& collective) {
      std::vector<Layer> layers = make_layers();
      const std::vector<int> owners(kLayers, 0);
      GradientReducer reducer(layers, owners, collective, options);
      const int mine = kParts / collective->size();
      reducer.begin(mine);
      for (int part = 0; part < mine; ++part) backward(layers, 10 * (mine * collective->rank() + part));
      reducer.finish();
      return layers;
    };
    const std::vector<Layer> alone = sum(make_collective("single", {}));
    const std::vector<Layer> shared = sum(make_collective("gloo", ranks));
    for (std::size_t i = 0; i < alone.size() && ranks.rank == 0; ++i) {
      EXPECT_TRUE(alone[i].parameter.grad().equal(shared[i].parameter.grad()));
      EXPECT_EQ(shared[i].parameter.grad().scalar_type(), at::kFloat);
    }
  });
}

TEST(GradientReducer, RejectsMoreBackwardPassesThanAnnounced) {
  expect_ranks(1, [](const Ranks&) {
    const std::vector<Layer> layers = make_layers();
    const CollectivePtr single = make_collective("single", {});
    GradientReducer reducer(layers, std::vector<int>(kLayers, 0), single, {.exact = true});
    reducer.begin(1);
    backward(layers, 0);
    EXPECT_INPUT_ERROR(backward(layers, 0), "was reached by more backward passes than the 1 announced");
    EXPECT_INPUT_ERROR(GradientReducer(layers, kOwners, single, {.bucket_bytes = 0}),
                       "bucket_bytes must be >= 1, got 0");
  });
}

}  // namespace
}  // namespace gluon
