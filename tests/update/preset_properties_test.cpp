// Presets x properties: adding a preset is adding one row, and it must have every property.

#include <ATen/ATen.h>

#include <set>

#include "gluon/geometry/presets.h"
#include "gluon/testing/problems.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

struct Row {
  std::string name;
  Geometry geometry;
};

std::vector<Row> rows() {
  using presets::MuonScale;
  return {{"muon_none", presets::muon({.scale = MuonScale::kNone})},
          {"muon_aspect", presets::muon({.scale = MuonScale::kAspect, .weight_decay = 0.01})},
          {"muon_match_adam", presets::muon({.scale = MuonScale::kMatchAdam})},
          {"normuon", presets::normuon()},
          {"normuon_cautious", presets::normuon({.weight_decay = "cautious(0.05,linear(20,20))"})},
          {"adamuon", presets::muon({.scale = MuonScale::kMatchAdam, .normalize = "adamuon(0.95)"})},
          {"muonclip", presets::muonclip({.hidden = 0.02, .adamw = 0.01})},
          {"scion", presets::scion({.gamma = 0.01, .conv_gamma = 0.01, .hidden = 3, .embedding = 20, .conv = 1})},
          {"unscion", presets::unscion({.hidden = 0.02, .embedding = 0.1, .conv = 0.02, .head = 0.1})},
          {"sphere", presets::sphere({.steps = 20, .embedding = 0.1, .vector = 0.02})},
          {"sign_descent", presets::sign_descent(0.01)},
          {"normalized_descent", presets::normalized_descent(0.02)},
          {"sgd", presets::sgd(0.05)},
          {"deterministic_gluon", presets::deterministic_gluon({.l0 = 40, .l1 = 1, .norms = presets::unscion()})},
          {"adamw", presets::adamw(0.01)}};
}

class PresetProperties : public testing::TestWithParam<std::tuple<Row, bool>> {
 protected:
  static std::vector<Layer> make_layers() {
    return std::get<1>(GetParam()) ? cnn_layers(at::kFloat) : transformer_layers(at::kFloat);
  }
  static Optimizer make_optimizer(const std::vector<Layer>& layers) {
    return {layers, std::get<0>(GetParam()).geometry};
  }

  std::vector<Layer> layers = make_layers();
  Optimizer optimizer = make_optimizer(layers);
};

TEST_P(PresetProperties, Descends) {
  const double start = quadratic_loss(layers);
  train(optimizer, layers, 20);
  EXPECT_LT(quadratic_loss(layers), 0.98 * start);
}

TEST_P(PresetProperties, GradientsAreNotModified) {
  for (int step = 0; step < 3; ++step) {
    quadratic_loss(layers);
    std::vector<at::Tensor> gradients;
    for (const Layer& layer : layers) gradients.push_back(layer.parameter.grad().clone());
    optimizer.step();
    for (std::size_t i = 0; i < layers.size(); ++i) EXPECT_TRUE(layers[i].parameter.grad().equal(gradients[i]));
  }
}

TEST_P(PresetProperties, ResumesBitForBitInAnyLayerOrder) {
  auto whole = make_layers();
  Optimizer uninterrupted = make_optimizer(whole);
  train(uninterrupted, whole, 4);

  train(optimizer, layers, 2);
  Optimizer after = make_optimizer({layers.rbegin(), layers.rend()});
  after.load_state(optimizer.state());
  EXPECT_EQ(after.steps_taken(), 2);
  train(after, layers, 2);
  EXPECT_TRUE(bitwise_equal(layers, copies_of(whole)));
}

// Reads everything an observer can see.
class Watcher : public StepObserver {
 public:
  void after_step(const BatchStep& batch) override {
    for (const Block& block : batch.blocks) seen.insert(block.layer.name);
    sum += batch.radius.sum().item<double>();
    if (batch.norm == nullptr) {  // AdamW's
      EXPECT_FALSE(batch.direction.defined());
      EXPECT_INPUT_ERROR(batch.momentum_dual_norm(), "AdamW's layers have no direction");
    } else {
      sum += batch.momentum_dual_norm().sum().item<double>();
    }
    for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
      EXPECT_TRUE(batch.gradients[i].equal(batch.blocks[i].of(batch.blocks[i].layer.parameter.grad())));
    }
  }
  std::set<std::string> seen;
  double sum = 0;
};

TEST_P(PresetProperties, ObserverChangesNothing) {
  auto watched = make_layers();
  Optimizer watched_optimizer = make_optimizer(watched);
  const auto watcher = std::make_shared<Watcher>();
  watched_optimizer.add_observer(watcher);
  train(optimizer, layers, 3);
  train(watched_optimizer, watched, 3);
  EXPECT_TRUE(bitwise_equal(watched, copies_of(layers)));
  EXPECT_EQ(watcher->seen.size(), layers.size());
  EXPECT_GT(watcher->sum, 0);
}

TEST(DeterministicGluon, ObeysTheDescentInequalityOutOfTheBox) {
  const std::vector<MatrixShape> shapes{{1, 20, 16, 1}};
  const Problem problem = make_problem("quadratic", shapes, 1);
  std::vector<Layer> layers = problem.layers();
  const NormPtr norm = make_norm("scaled(sqrt(n/m),spectral(svd))", shapes[0]);
  const Smoothness constants = problem.objectives[0]->smoothness(*norm);
  Optimizer optimizer(layers, presets::deterministic_gluon({.l0 = constants.l0, .l1 = 0, .norms = presets::unscion()}));
  for (int step = 0; step < 100; ++step) {
    const double before = problem.value(layers);
    problem.write_gradients(layers);
    const double dual = norm->dual_norm(layers[0].parameter.grad().unsqueeze(0)).item<double>();
    optimizer.step();
    EXPECT_LE(problem.value(layers), before - dual * dual / (2 * constants.l0) + 1e-12 * before);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PresetProperties, testing::Combine(testing::ValuesIn(rows()), testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + (std::get<1>(info.param) ? "_cnn" : "_llm");
                         });

}  // namespace
}  // namespace gluon
