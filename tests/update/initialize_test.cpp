#include "gluon/update/initialize.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/geometry/presets.h"
#include "gluon/plan/step_plan.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

TEST(Initialize, EveryMatrixLiesOnItsSphere) {
  for (auto layers : {transformer_layers(), cnn_layers()}) {
    for (const Geometry& geometry : {presets::unscion(), presets::scion()}) {
      initialize(layers, geometry, {.ball = 3});
      for (const StepPlan::Batch& batch : route(layers, geometry, {.orthogonalizer = "svd"}).batches) {
        for (const Block& block : batch.blocks) {
          if (block.layer.role == Role::kVector || block.layer.role == Role::kScalar) continue;
          const at::Tensor x = block.of(block.layer.parameter).reshape({1, block.shape.rows, block.shape.cols});
          const double expected = geometry.rules()[batch.rule].ball.value_or(3);
          EXPECT_NEAR(batch.norm->norm(x).item<double>(), expected, 1e-9 * expected) << block.name;
        }
      }
    }
  }
}

TEST(Initialize, ResultDependsOnTheSeedNotOnTheOrder) {
  auto first = transformer_layers();
  auto second = transformer_layers();
  std::vector<Layer> reversed(second.rbegin(), second.rend());
  initialize(first, presets::unscion(), {.seed = 5});
  initialize(reversed, presets::unscion(), {.seed = 5});
  EXPECT_TRUE(bitwise_equal(first, copies_of(second)));
  initialize(second, presets::unscion(), {.seed = 6});
  EXPECT_FALSE(first[1].parameter.equal(second[1].parameter));
  EXPECT_FALSE(first[2].parameter.equal(first[3].parameter));
}

TEST(Initialize, BiasesStartAtZeroAndGainsKeepTheirValues) {
  auto layers = transformer_layers();
  layers.push_back({"proj.bias", at::ones({6}), Role::kVector});
  const auto start = copies_of(layers);
  initialize(layers, presets::unscion());
  EXPECT_TRUE(layers[5].parameter.equal(start[5]));
  EXPECT_TRUE(layers[6].parameter.equal(start[6]));
  EXPECT_TRUE(layers[7].parameter.equal(at::zeros({6})));
}

TEST(Initialize, AdamWLayersKeepTheirValues) {
  auto layers = transformer_layers();
  const auto start = copies_of(layers);
  initialize(layers, presets::muon());
  EXPECT_TRUE(layers[0].parameter.equal(start[0]));
  EXPECT_FALSE(layers[1].parameter.equal(start[1]));
}

TEST(Initialize, BadInput) {
  const auto layers = transformer_layers();
  EXPECT_INPUT_ERROR(initialize(layers, presets::unscion(), {.ball = 0}),
                     "initialize: ball must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(initialize(layers, presets::unscion(), {.ball = INFINITY}),
                     "initialize: ball must be > 0 and finite, got inf");
}

// The signs of the first weights of a seed: models that start elsewhere cannot be compared with recorded runs.
TEST(Initialize, SeedGivesTheRecordedWeights) {
  std::vector<Layer> layers{{"w", at::zeros({2, 16}), Role::kHidden}};
  initialize(layers, presets::sign_descent(), {.ball = 2, .seed = 3});
  std::string signs;
  for (int64_t i = 0; i < 32; ++i) signs += layers[0].parameter.flatten()[i].item<float>() == 2 ? '+' : '-';
  EXPECT_EQ(signs, "--+-+++-+-------++-++---++-++--+");
}

}  // namespace
}  // namespace gluon
