#include "gluon/plan/step_plan.h"

#include <ATen/ATen.h>

#include <limits>

#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

std::vector<Layer> squares(int count) {
  std::vector<Layer> layers;
  for (int i = 0; i < count; ++i) layers.push_back({"h." + std::to_string(i), at::zeros({8, 8})});
  return layers;
}

std::vector<std::string> names_of(const std::vector<Block>& blocks) {
  std::vector<std::string> names;
  for (const Block& block : blocks) names.push_back(block.name);
  return names;
}

TEST(StepPlan, BatchesHoldMatricesThatAreAlike) {
  const Geometry geometry({{.pattern = "*.qkv.*", .norm = "spectral", .split = "qkv"},
                           {.role = Role::kHidden, .norm = "spectral"},
                           {.norm = "rows"}});
  const std::vector<Layer> layers = transformer_layers();
  const StepPlan plan = route(layers, geometry);
  ASSERT_EQ(plan.batches.size(), 6);
  EXPECT_EQ(names_of(plan.batches[0].blocks),
            (std::vector<std::string>{"blocks.0.qkv.weight[0]", "blocks.0.qkv.weight[1]", "blocks.0.qkv.weight[2]"}));
  EXPECT_EQ(names_of(plan.batches[1].blocks),
            (std::vector<std::string>{"blocks.0.proj.weight", "blocks.1.proj.weight"}));
  EXPECT_EQ(plan.batches[2].blocks.size(), 3);  // the experts
  EXPECT_EQ(plan.batches[1].layers, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(plan.rules, (std::vector<std::size_t>{2, 0, 1, 1, 1, 2, 2}));
}

TEST(StepPlan, GroupsAndDtypesAreBatchesOfTheirOwn) {
  std::vector<Layer> layers = squares(4);
  layers[1].group = 1;
  layers[2].parameter = layers[2].parameter.to(at::kDouble);
  const StepPlan plan = route(layers, Geometry({{.norm = "rows"}}));
  ASSERT_EQ(plan.batches.size(), 3);
  EXPECT_EQ(names_of(plan.batches[0].blocks), (std::vector<std::string>{"h.0", "h.3"}));
}

TEST(StepPlan, NamesFollowTheLayersAndPlacesPointThere) {
  const std::vector<Layer> layers = transformer_layers();
  const StepPlan plan = route(layers, presets::muon());
  EXPECT_EQ(plan.names.front(), "wte.weight");
  EXPECT_EQ(plan.names.back(), "temperature");
  for (const StepPlan::Batch& batch : plan.batches) {
    for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
      EXPECT_EQ(plan.names[batch.places[i]], batch.blocks[i].name);
      EXPECT_EQ(layers[batch.layers[i]].name, batch.blocks[i].layer.name);
    }
  }
  ASSERT_FALSE(plan.adamw.empty());
  for (const StepPlan::AdamWLayer& entry : plan.adamw) {
    EXPECT_EQ(plan.names[entry.place], layers[entry.layer].name);
    EXPECT_EQ(plan.phases()[entry.layer], std::numeric_limits<int64_t>::max() - 1);
  }
}

TEST(StepPlan, FusedProjectionsOfTorchAreThreeMatricesUnlessTheRuleSaysOtherwise) {
  const std::vector<Layer> layers{{"attn.in_proj_weight", at::zeros({24, 8})}};
  const auto names = [&](const Rule& rule) { return route(layers, Geometry({rule})).names; };
  EXPECT_EQ(names({}).size(), 3);
  EXPECT_EQ(names({.split = "rows:6"}).size(), 6);
  EXPECT_EQ(names({.split = "rows:1"}), std::vector<std::string>{"attn.in_proj_weight"});
  EXPECT_EQ(names({.norm = "adamw"}), std::vector<std::string>{"attn.in_proj_weight"});
}

TEST(StepPlan, PhasesCountEachOwnersBatches) {
  std::vector<Layer> layers = squares(4);
  layers.push_back({"long", at::zeros({8, 32})});
  const StepPlan plan = route(layers, presets::unscion(), {.ranks = 2});
  std::vector<int64_t> next(2, 0);
  for (const StepPlan::Batch& batch : plan.batches) {
    EXPECT_EQ(batch.phase, next[static_cast<std::size_t>(batch.owner)]++);
    for (const std::size_t layer : batch.layers) {
      EXPECT_EQ(plan.owners[layer], batch.owner);
      EXPECT_EQ(plan.phases()[layer], batch.phase);
    }
  }
}

TEST(StepPlan, OwnersAreNumberedAsTheBackwardPassReachesThem) {
  EXPECT_EQ(route(squares(6), presets::unscion(), {.ranks = 3}).owners, (std::vector<int>{2, 1, 0, 2, 1, 0}));
}

TEST(StepPlan, ALongMatrixCostsLessThanItsSquares) {
  const auto cost = [](int64_t rows, int64_t columns) {
    return step_cost(split_blocks({"h", at::zeros({rows, columns})}, ""), {.norm = "scaled(2,spectral)"});
  };
  EXPECT_EQ(cost(64, 256), cost(256, 64));
  EXPECT_GT(cost(64, 256), cost(64, 64));
  EXPECT_LT(cost(64, 256), 4 * cost(64, 64));
  EXPECT_EQ(cost(4, 4), 9 * 64 + 9 * 64);
  EXPECT_EQ(cost(4, 5), 9 * 16 * 5 + 9 * 64);
  EXPECT_EQ(cost(4, 6), 6 * 16 * 6 + 12 * 64);
  EXPECT_EQ(step_cost(split_blocks({"h", at::zeros({64, 256})}, ""), {.norm = "rows"}), 64 * 256);
}

TEST(StepPlan, BalanceSpreadsTheCosts) {
  const std::vector<double> costs{1, 8, 3, 3, 2, 7};
  const std::vector<int> owners = balance(costs, 3);
  std::vector<double> loads(3);
  for (std::size_t i = 0; i < costs.size(); ++i) loads[static_cast<std::size_t>(owners[i])] += costs[i];
  EXPECT_EQ(loads, (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(balance(std::vector<double>{5}, 4), (std::vector<int>{0}));
  EXPECT_EQ(balance(std::vector<double>{2, 2, 2, 2}, 2), (std::vector<int>{0, 1, 0, 1}));  // ties keep their order
}

TEST(StepPlan, APatternWithoutLayersIsNamed) {
  const Geometry geometry = presets::unscion().with_first({.pattern = "blocks.*.qvk.weight", .norm = "rows"});
  EXPECT_INPUT_ERROR(route(transformer_layers(), geometry),
                     "the pattern 'blocks.*.qvk.weight' of a rule matches no layer");
}

}  // namespace
}  // namespace gluon
