#include "gluon/geometry/presets.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

Rule rule_for(const Geometry& geometry, const std::vector<Layer>& layers, std::size_t index) {
  return geometry.rules()[geometry.assign(layers)[index]];
}

std::string resolved(const Rule& rule, const Layer& layer) {
  return rule.norm.resolve(split_blocks(layer, rule.split).front().shape, kDefaultOrthogonalizer)->name();
}

TEST(Presets, UnscionOnATransformerWithTiedEmbedding) {
  const Geometry geometry = presets::unscion();
  auto layers = transformer_layers();
  EXPECT_EQ(resolved(rule_for(geometry, layers, 0), layers[0]), "scaled(6,max_entry)");
  EXPECT_EQ(rule_for(geometry, layers, 0).radius->name(), "1.08");
  EXPECT_EQ(rule_for(geometry, layers, 2).radius->name(), "0.018");
  EXPECT_EQ(resolved(rule_for(geometry, layers, 2), layers[2]), "scaled(1,spectral)");
  EXPECT_EQ(rule_for(geometry, layers, 5).norm.name(), "scaled(1/sqrt(m),euclidean)");
}

TEST(Presets, UnscionUsesTheRowsNormForAnUntiedEmbedding) {
  auto layers = transformer_layers();
  layers.push_back({"lm_head.weight", random_tensor({20, 6}, 9), Role::kHead});
  const Geometry geometry = presets::unscion({.embedding = 2, .head = 3});
  EXPECT_EQ(rule_for(geometry, layers, 0).norm.name(), "scaled(1/sqrt(n),rows)");
  EXPECT_EQ(resolved(rule_for(geometry, layers, 7), layers[7]), "scaled(6,max_entry)");
  EXPECT_EQ(rule_for(geometry, layers, 7).radius->name(), "3");
}

TEST(Presets, UnscionRadiiOnACnn) {
  const Geometry geometry = presets::unscion();
  const auto layers = cnn_layers();
  EXPECT_EQ(rule_for(geometry, layers, 0).radius->name(), "0.5");
  EXPECT_EQ(rule_for(geometry, layers, 2).radius->name(), "0.5");
  EXPECT_EQ(rule_for(geometry, layers, 3).radius->name(), "50");
}

TEST(Presets, ScionIsUnscionInABall) {
  const Geometry geometry = presets::scion();
  const auto layers = transformer_layers();
  EXPECT_NEAR(*rule_for(geometry, layers, 2).radius->constant(), 0.018, 1e-15);
  EXPECT_NEAR(*rule_for(geometry, layers, 2).ball, 50, 1e-12);
  EXPECT_NEAR(*rule_for(geometry, layers, 0).radius->constant(), 1.08, 1e-15);
  EXPECT_NEAR(*rule_for(geometry, layers, 0).ball, 3000, 1e-9);
}

TEST(Presets, UntiedEmbeddingUsesTheHiddenRadius) {
  auto layers = transformer_layers();
  layers.push_back({"lm_head.weight", random_tensor({20, 6}, 9), Role::kHead});
  EXPECT_EQ(rule_for(presets::unscion(), layers, 0).radius->name(), "0.018");
  EXPECT_EQ(rule_for(presets::unscion({.untied_embedding = 3}), layers, 0).radius->name(), "3");
}

TEST(Presets, VisionTransformerIsNotTreatedAsACnn) {
  const std::vector<Layer> vit{{"patch.weight", random_tensor({8, 3, 4, 4}, 1), Role::kConv},
                               {"block.weight", random_tensor({8, 8}, 2), Role::kHidden},
                               {"block.bias", random_tensor({8}, 3), Role::kVector},
                               {"head.weight", random_tensor({10, 8}, 4), Role::kHead}};
  for (const Geometry& geometry : {presets::unscion(), presets::scion()}) {
    EXPECT_NEAR(*rule_for(geometry, vit, 0).radius->constant(), 0.5, 1e-12);
    EXPECT_NEAR(*rule_for(geometry, vit, 1).radius->constant(), 0.018, 1e-12);
    EXPECT_NEAR(*rule_for(geometry, vit, 2).radius->constant(), 0.018, 1e-12);
    EXPECT_NEAR(*rule_for(geometry, vit, 3).radius->constant(), 1.08, 1e-12);
  }
}

TEST(Presets, MuonDoesNotDecayVectors) {
  const Geometry geometry = presets::muon({.weight_decay = 0.1});
  const auto layers = transformer_layers();
  EXPECT_EQ(rule_for(geometry, layers, 0).weight_decay, 0.1);
  EXPECT_EQ(rule_for(geometry, layers, 1).weight_decay, 0.1);
  EXPECT_EQ(rule_for(geometry, layers, 5).weight_decay, 0);
}

TEST(Presets, ScionGammaOnACnn) {
  const Geometry geometry = presets::scion();
  const auto layers = cnn_layers();
  EXPECT_DOUBLE_EQ(*rule_for(geometry, layers, 0).radius->constant(), 0.5);
  EXPECT_DOUBLE_EQ(*rule_for(geometry, layers, 0).ball, 8);
  EXPECT_DOUBLE_EQ(*rule_for(geometry, layers, 3).radius->constant(), 50);
}

TEST(Presets, MuonScales) {
  const std::vector<Layer> tall{{"w", at::zeros({64, 16})}};
  const auto factor = [&](presets::MuonScale scale) {
    const at::Tensor g = random_tensor({1, 64, 16}, 1, at::kDouble);
    const Geometry geometry = presets::muon({.scale = scale});
    const Rule rule = rule_for(geometry, tall, 0);
    return make_norm("max_entry")->norm(rule.norm.resolve({1, 64, 16, 1}, "svd")->lmo(g)).item<double>() /
           make_norm("max_entry")->norm(make_norm("spectral(svd)")->lmo(g)).item<double>();
  };
  EXPECT_NEAR(factor(presets::MuonScale::kNone), 1, 1e-12);
  EXPECT_NEAR(factor(presets::MuonScale::kAspect), 2, 1e-12);
  EXPECT_NEAR(factor(presets::MuonScale::kMatchAdam), 0.2 * 8, 1e-12);
}

TEST(Presets, MuonAssignsOtherLayersToAdamW) {
  const Geometry geometry = presets::muon({.adamw = 0.001});
  const auto layers = transformer_layers();
  for (const std::size_t i : {0, 5, 6}) EXPECT_TRUE(rule_for(geometry, layers, i).norm.is_adamw());
  EXPECT_FALSE(rule_for(geometry, layers, 1).norm.is_adamw());
  EXPECT_EQ(geometry.momentum().name(), "nesterov(0.95)");
}

TEST(Presets, DeterministicGluonUsesTheorem1Radii) {
  const Geometry geometry = presets::deterministic_gluon({.l0 = 1, .l1 = 2, .norms = presets::sign_descent()});
  EXPECT_EQ(geometry.rules()[0].radius->name(), "smooth(1,2)");
  EXPECT_EQ(geometry.rules()[0].norm.name(), "max_entry");
  const Geometry exact = presets::deterministic_gluon({.norms = presets::scion()});
  EXPECT_EQ(exact.rules()[0].norm.name(), "scaled(sqrt(n/m),spectral(svd))");
  EXPECT_FALSE(exact.rules()[0].ball.has_value());
  EXPECT_EQ(geometry.momentum().name(), "none");
}

TEST(Presets, ByNameWithRadii) {
  const auto layers = transformer_layers();
  const Geometry geometry = presets::make("unscion", {{"hidden", 0.5}, {"head", 7}});
  EXPECT_EQ(rule_for(geometry, layers, 1).radius->name(), "0.5");
  EXPECT_EQ(presets::make("sign_descent", {{"all", 0.5}}).rules()[0].radius->name(), "0.5");
  EXPECT_EQ(presets::make("deterministic_gluon", {{"L0", 3}}).rules()[0].radius->name(), "smooth(3,1)");
  EXPECT_EQ(presets::make("deterministic_gluon", {{"L1", 5}}).rules()[0].radius->name(), "smooth(0,5)");
  const Geometry muon = presets::make("muon", {{"hidden", 0.5}, {"adamw", 0.25}});
  EXPECT_EQ(rule_for(muon, layers, 1).radius->name(), "0.5");
  EXPECT_EQ(rule_for(muon, layers, 0).radius->name(), "0.25");
  const Geometry scion = presets::make("scion", {{"gamma", 0.5}, {"hidden", 2}, {"embedding", 4}, {"vector", 6}});
  EXPECT_EQ(rule_for(scion, layers, 1).radius->name(), "1");
  EXPECT_EQ(*rule_for(scion, layers, 1).ball, 2);
  EXPECT_EQ(rule_for(scion, layers, 0).radius->name(), "2");
  EXPECT_EQ(rule_for(scion, layers, 5).radius->name(), "3");
  const Geometry cnn = presets::make("scion", {{"conv_gamma", 0.25}, {"conv", 4}, {"head", 8}});
  EXPECT_EQ(rule_for(cnn, cnn_layers(), 0).radius->name(), "1");
  EXPECT_EQ(rule_for(cnn, cnn_layers(), 2).radius->name(), "1");
  EXPECT_EQ(*rule_for(cnn, cnn_layers(), 2).ball, 4);
  EXPECT_EQ(rule_for(cnn, cnn_layers(), 3).radius->name(), "2");
  EXPECT_EQ(*rule_for(cnn, cnn_layers(), 3).ball, 8);
}

TEST(Presets, DefaultsByName) {
  const auto layers = transformer_layers();
  EXPECT_EQ(presets::make("sign_descent").rules()[0].radius->constant(), 3e-4);
  EXPECT_EQ(presets::make("normalized_descent").rules()[0].radius->constant(), 0.02);
  EXPECT_EQ(presets::make("adamw").rules()[0].radius->constant(), 3e-4);
  EXPECT_EQ(presets::make("adamw").rules()[0].weight_decay, 0.1);
  EXPECT_EQ(rule_for(presets::make("scion"), layers, 1).radius->constant(),
            rule_for(presets::scion(), layers, 1).radius->constant());
  EXPECT_EQ(rule_for(presets::make("muon"), layers, 1).radius->constant(),
            rule_for(presets::muon(), layers, 1).radius->constant());
}

TEST(Presets, DeterministicGluonKeepsANamedOrthogonalizer) {
  const Geometry norms({{.norm = "scaled(2,spectral(newton_schulz:5))", .weight_decay = 0.5}});
  const Rule rule = presets::deterministic_gluon({.norms = norms}).rules()[0];
  EXPECT_EQ(rule.norm.name(), "scaled(2,spectral(newton_schulz:5))");
  EXPECT_EQ(rule.weight_decay, 0);
}

TEST(Presets, BadInput) {
  EXPECT_INPUT_ERROR(presets::make("lion"), "unknown name 'lion'; allowed are muon, scion, unscion, sign_descent");
  EXPECT_INPUT_ERROR(presets::make("unscion", {{"heads", 1}}),
                     "preset unscion: unknown radius 'heads'; allowed are hidden, embedding, conv, "
                     "untied_embedding, head, vector");
  EXPECT_INPUT_ERROR(presets::make("sign_descent", {{"hidden", 1}}), "unknown radius 'hidden'; allowed are all");
  EXPECT_INPUT_ERROR(presets::make("unscion", {{"head", std::nan("")}}), "radius: must be > 0, got nan");
  EXPECT_INPUT_ERROR(presets::unscion({.hidden = -1}), "radius: must be > 0, got -1");
  EXPECT_INPUT_ERROR(presets::scion({.gamma = 2}), "scion: gamma must be in (0, 1], got 2");
  EXPECT_NO_THROW(presets::scion({.gamma = 1, .conv_gamma = 1}));
  EXPECT_INPUT_ERROR(presets::scion({.gamma = 0}), "scion: gamma must be in (0, 1], got 0");
  EXPECT_INPUT_ERROR(presets::scion({.conv_gamma = 2}), "scion: conv_gamma must be in (0, 1], got 2");
  EXPECT_INPUT_ERROR(presets::scion({.conv_gamma = 0}), "scion: conv_gamma must be in (0, 1], got 0");
  EXPECT_INPUT_ERROR(presets::deterministic_gluon({.norms = presets::muon()}), "needs a norm for every layer");
}

}  // namespace
}  // namespace gluon
