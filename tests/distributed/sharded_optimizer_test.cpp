// Several ranks, each with its share of the examples, train as one rank with all of them does.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "tests/distributed/processes.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

constexpr int kSteps = 4;

std::vector<Layer> make_layers() {
  const at::Generator random = at::detail::createCPUGenerator(1);
  const auto layer = [&](const std::string& name, std::vector<int64_t> sizes, Role role) {
    return Layer{name, at::randn(sizes, random).set_requires_grad(true), role};
  };
  std::vector<Layer> layers;
  for (int i = 0; i < 3; ++i) {
    layers.push_back(layer("h." + std::to_string(i) + ".up", {12, 7}, Role::kHidden));
    layers.push_back(layer("h." + std::to_string(i) + ".down", {7, 12}, Role::kHidden));
  }
  layers.push_back(layer("wte", {30, 7}, Role::kEmbedding));
  layers.push_back(layer("never", {5, 5}, Role::kHidden));
  return layers;
}

// Sets the mean gradient of examples [first, first + count) of a step; "never" gets none.
void set_gradients(std::vector<Layer>& layers, int step, int first, int count) {
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    at::Tensor sum = at::zeros_like(layers[i].parameter);
    for (int example = first; example < first + count; ++example) {
      const auto seed = static_cast<uint64_t>(1000 * step + 100 * static_cast<int>(i) + example);
      sum += at::randn(sum.sizes(), at::detail::createCPUGenerator(seed));
    }
    layers[i].parameter.mutable_grad() = sum / count;
  }
}

// Called in forked processes only: no fork may follow the start of ATen's threads.
void train(Optimizer& optimizer, std::vector<Layer>& layers, int from, int to, const Ranks& ranks) {
  constexpr int kExamples = 6;
  const int mine = kExamples / ranks.size;
  for (int step = from; step < to; ++step) {
    set_gradients(layers, step, mine * ranks.rank, mine);
    optimizer.step();
  }
}

OptimizerOptions options_for(const Ranks& ranks) {
  OptimizerOptions options;
  options.warn = [](const std::string&) {};
  options.collective = make_collective(ranks.size == 1 ? "single" : "gloo", ranks);
  return options;
}

double distance(const std::vector<Layer>& a, const std::vector<Layer>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, (a[i].parameter - b[i].parameter).abs().max().item<double>());
  }
  return worst;
}

Geometry geometry_of(const std::string& preset) {
  return preset == "sphere" ? presets::sphere({.steps = kSteps}) : presets::make(preset);
}

class Sharded : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(Sharded, TrainsAsOneRank) {
  const auto [size, preset] = GetParam();
  expect_ranks(size, [&preset = preset](const Ranks& ranks) {
    std::vector<Layer> alone = make_layers(), shared = make_layers();
    Optimizer reference(alone, geometry_of(preset), options_for({}));
    train(reference, alone, 0, kSteps, {});
    Optimizer optimizer(shared, geometry_of(preset), options_for(ranks));
    train(optimizer, shared, 0, kSteps, ranks);
    EXPECT_LT(distance(alone, shared), 1e-5);
    EXPECT_EQ(optimizer.steps_taken(), kSteps);
    EXPECT_EQ(optimizer.effective_radii().size(), reference.effective_radii().size());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sharded,
                         ::testing::Combine(::testing::Values(2, 3, 6),
                                            ::testing::Values("unscion", "sphere", "muon", "normuon", "sgd", "adamw")));

TEST(ShardedState, EqualsTheStateOfOneRank) {
  expect_ranks(3, [](const Ranks& ranks) {
    constexpr int kSaved = 2;
    std::vector<Layer> layers = make_layers(), alone = make_layers();
    Optimizer optimizer(layers, presets::make("unscion"), options_for(ranks));
    Optimizer reference(alone, presets::make("unscion"), options_for({}));
    train(reference, alone, 0, kSaved, {});
    optimizer.load_state(reference.state());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].parameter.detach().copy_(alone[i].parameter.detach());
    }
    train(optimizer, layers, kSaved, kSteps, ranks);
    train(reference, alone, kSaved, kSteps, {});
    EXPECT_LT(distance(alone, layers), 1e-5);
    const OptimizerState ours = optimizer.state(), theirs = reference.state();
    EXPECT_EQ(ours.tensors.size(), theirs.tensors.size());
    for (const auto& [name, tensor] : theirs.tensors) {
      EXPECT_LT((ours.tensors.at(name) - tensor).abs().max().item<double>(), 1e-5) << name;
    }
    std::map<std::string, at::Tensor> parts;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const OptimizerState part = optimizer.layer_state(i);
      EXPECT_EQ(part.step, ours.step);
      for (const auto& [name, tensor] : part.tensors) {
        EXPECT_EQ(name.substr(name.find('/') + 1), layers[i].name);
        EXPECT_TRUE(tensor.equal(ours.tensors.at(name))) << name;
      }
      parts.insert(part.tensors.begin(), part.tensors.end());
    }
    EXPECT_EQ(parts.size(), ours.tensors.size());
  });
}

TEST(ShardedMomentum, IsDividedAmongTheRanks) {
  expect_ranks(4, [](const Ranks& ranks) {
    std::vector<Layer> layers;
    for (int i = 0; i < 16; ++i) {
      layers.push_back({"h." + std::to_string(i), at::zeros({32, 32}).set_requires_grad(true), Role::kHidden});
    }
    Optimizer optimizer(layers, presets::make("unscion"), options_for(ranks));
    EXPECT_LE(optimizer.state_bytes(), 0.35 * 16 * 32 * 32 * 4);
    EXPECT_GT(optimizer.state_bytes(), 0);
  });
}

TEST(ShardedMomentum, IsSavedByTheFirstRank) {
  const TemporaryFolder folder;
  expect_ranks(2, [&](const Ranks& ranks) {
    const Optimizer optimizer(make_layers(), presets::make("unscion"), options_for(ranks));
    const auto path = folder.path() / std::to_string(ranks.rank);
    save_optimizer(path, optimizer);
    EXPECT_EQ(std::filesystem::exists(path), ranks.rank == 0);
  });
}

TEST(ShardedAdamW, ClipsTheGradientsOfAllRanksTogether) {
  expect_ranks(3, [](const Ranks& ranks) {
    std::vector<Layer> alone = make_layers(), shared = make_layers();
    OptimizerOptions single = options_for({}), several = options_for(ranks);
    single.adamw.clip = several.adamw.clip = 0.1;
    Optimizer reference(alone, presets::make("adamw"), single);
    train(reference, alone, 0, kSteps, {});
    Optimizer optimizer(shared, presets::make("adamw"), several);
    train(optimizer, shared, 0, kSteps, ranks);
    EXPECT_LT(distance(alone, shared), 1e-5);
    EXPECT_LT(optimizer.state_bytes(), 0.6 * static_cast<double>(reference.state_bytes()));
  });
}

TEST(ShardedStep, NanOnOneRankStopsAllRanks) {
  expect_ranks(3, [](const Ranks& ranks) {
    std::vector<Layer> layers = make_layers(), before = make_layers();
    Optimizer optimizer(layers, presets::make("unscion"), options_for(ranks));
    set_gradients(layers, 0, 0, 1);
    if (ranks.rank == 2) layers[3].parameter.mutable_grad()[0][0] = std::nan("");
    EXPECT_INPUT_ERROR(optimizer.step(), "'h.1.down' holds NaN");
    EXPECT_EQ(distance(layers, before), 0);
  });
}

}  // namespace
}  // namespace gluon
