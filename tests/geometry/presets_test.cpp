#include "gluon/geometry/presets.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

using Norms = std::vector<std::string>;

// A transformer with a tied or an untied embedding, and a vision transformer.
std::vector<Layer> gpt() {
  return {{"wte.weight", at::zeros({20, 6}), Role::kEmbedding},
          {"qkv.weight", at::zeros({18, 6}), Role::kHidden},
          {"ln.weight", at::zeros({6}), Role::kVector}};
}

std::vector<Layer> untied_gpt() {
  auto layers = gpt();
  layers.push_back({"lm_head.weight", at::zeros({20, 6}), Role::kHead});
  return layers;
}

std::vector<Layer> vision_transformer() {
  return {{"patch.weight", at::zeros({8, 3, 4, 4}), Role::kConv},
          {"block.weight", at::zeros({8, 8}), Role::kHidden},
          {"block.bias", at::zeros({8}), Role::kVector},
          {"head.weight", at::zeros({10, 8}), Role::kHead}};
}

std::vector<Rule> rules_of(const Geometry& geometry, const std::vector<Layer>& layers) {
  std::vector<Rule> rules;
  for (const std::size_t index : geometry.assign(layers)) rules.push_back(geometry.rules()[index]);
  return rules;
}

Norms norms_of(const Geometry& geometry, const std::vector<Layer>& layers) {
  Norms names;
  for (const Rule& rule : rules_of(geometry, layers)) names.push_back(rule.norm.name());
  return names;
}

// Of every layer; no balls: none has one.
void expect_radii(const Geometry& geometry, const std::vector<Layer>& layers, const std::vector<double>& radii,
                  const std::vector<double>& balls = {}) {
  const std::vector<Rule> rules = rules_of(geometry, layers);
  ASSERT_EQ(rules.size(), radii.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    EXPECT_DOUBLE_EQ(*rules[i].radius->constant(), radii[i]) << layers[i].name;
    EXPECT_DOUBLE_EQ(rules[i].ball.value_or(0), balls.empty() ? 0 : balls[i]) << layers[i].name;
  }
}

TEST(Presets, NormsOfScion) {
  const std::string hidden = "scaled(sqrt(n/m),spectral)", conv = "scaled(sqrt(kernel*n/m),spectral)",
                    head = "scaled(n,max_entry)", vector = "scaled(1/sqrt(m),euclidean)";
  for (const Geometry& geometry : {presets::unscion(), presets::scion()}) {
    EXPECT_EQ(norms_of(geometry, gpt()), (Norms{head, hidden, vector}));
    EXPECT_EQ(norms_of(geometry, untied_gpt()), (Norms{"scaled(1/sqrt(n),rows)", hidden, vector, head}));
    EXPECT_EQ(norms_of(geometry, cnn_layers()), (Norms{conv, conv, vector, head}));
  }
}

TEST(Presets, RadiiOfUnscion) {
  expect_radii(presets::unscion(), gpt(), {1.08, 0.018, 0.018});
  expect_radii(presets::unscion(), untied_gpt(), {0.018, 0.018, 0.018, 1.08});
  expect_radii(presets::unscion({.untied_embedding = 3}), untied_gpt(), {3, 0.018, 0.018, 1.08});
  expect_radii(presets::unscion({.embedding = 2, .head = 3}), untied_gpt(), {0.018, 0.018, 0.018, 3});
  expect_radii(presets::unscion(), cnn_layers(), {0.5, 0.5, 0.5, 50});
  expect_radii(presets::unscion(), vision_transformer(), {0.5, 0.018, 0.018, 1.08});
}

TEST(Presets, ScionIsUnscionInABall) {
  expect_radii(presets::scion(), gpt(), {1.08, 0.018, 0.018}, {3000, 50, 50});
  expect_radii(presets::scion(), untied_gpt(), {0.018, 0.018, 0.018, 1.08}, {50, 50, 50, 3000});
  expect_radii(presets::scion(), cnn_layers(), {0.5, 0.5, 0.5, 50}, {8, 8, 8, 800});
  expect_radii(presets::scion(), vision_transformer(), {0.5, 0.018, 0.018, 1.08}, {8, 50, 50, 3000});
}

std::vector<std::string> spheres_of(const Geometry& geometry, const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  for (const Rule& rule : rules_of(geometry, layers)) names.push_back(rule.sphere ? rule.sphere->name() : "");
  return names;
}

TEST(Presets, SphereHasTheNormsOfScionAndSpheresForMatrices) {
  const Geometry geometry = presets::sphere({.steps = 400});
  for (const auto& layers : {gpt(), untied_gpt(), cnn_layers(), vision_transformer()}) {
    EXPECT_EQ(norms_of(geometry, layers), norms_of(presets::unscion(), layers));
  }
  EXPECT_EQ(spheres_of(geometry, untied_gpt()), (Norms{"", "auto", "", ""}));
  EXPECT_EQ(spheres_of(geometry, cnn_layers()), (Norms{"auto", "auto", "", ""}));
  EXPECT_EQ(geometry.momentum().name(), "ema(0.9)");
}

TEST(Presets, RadiiOfSphereFollowFromTheSteps) {
  const double law = 0.45 * std::pow(400, -0.4);
  const auto sphere = [](presets::SphereOptions options) {
    options.steps = 400;
    return presets::sphere(options);
  };
  expect_radii(sphere({}), gpt(), {0.7, law, law});
  expect_radii(sphere({}), untied_gpt(), {law, law, law, 0.7});
  expect_radii(sphere({}), cnn_layers(), {law, law, law, 0.7});
  expect_radii(sphere({}), vision_transformer(), {law, law, law, 0.7});
  expect_radii(sphere({.factor = 2}), untied_gpt(), {2 * law, 2 * law, 2 * law, 0.7});
  expect_radii(sphere({.hidden = 0.05}), vision_transformer(), {law, 0.05, 0.05, 0.7});
  expect_radii(sphere({.conv = 0.05}), cnn_layers(), {0.05, 0.05, 0.05, 0.7});
  expect_radii(sphere({.embedding = 2, .untied_embedding = 3, .vector = 4}), untied_gpt(), {3, law, 4, 2});
  expect_radii(sphere({.head = 5}), untied_gpt(), {law, law, law, 5});
  expect_radii(presets::sphere({.hidden = 0.05, .conv = 0.1}), vision_transformer(), {0.1, 0.05, 0.05, 0.7});
  const std::string report = sphere({}).routing_report(gpt());
  EXPECT_NE(report.find("  sphere auto  radius 0.0409627 = 0.45 K^-0.4 with K = 400\n"), std::string::npos) << report;
}

TEST(Presets, MuonAssignsOtherLayersToAdamWAndDoesNotDecayVectors) {
  const Geometry geometry = presets::muon({.weight_decay = 0.1, .adamw = 0.001});
  auto layers = gpt();
  layers.push_back({"temperature", at::zeros({}), Role::kScalar});
  EXPECT_EQ(norms_of(geometry, layers), (Norms{"adamw", "scaled(1/sqrt(max(1,m/n)),spectral)", "adamw", "adamw"}));
  expect_radii(geometry, layers, {0.001, 0.02, 0.001, 0.001});
  std::vector<double> decays;
  for (const Rule& rule : rules_of(geometry, layers)) decays.push_back(rule.decay.constant().value());
  EXPECT_EQ(decays, (std::vector<double>{0.1, 0.1, 0, 0}));
  EXPECT_EQ(geometry.momentum().name(), "nesterov(0.95)");
}

TEST(Presets, MuonScales) {
  using presets::MuonScale;
  for (const auto& [scale, name] : {std::pair{MuonScale::kNone, "spectral(svd)"},
                                    {MuonScale::kAspect, "scaled(0.5,spectral(svd))"},
                                    {MuonScale::kMatchAdam, "scaled(0.625,spectral(svd))"}}) {  // 1 / (0.2 * 8)
    const Rule rule = rules_of(presets::muon({.scale = scale}), {{"w", at::zeros({64, 16})}}).front();
    EXPECT_EQ(rule.norm.resolve({1, 64, 16, 1}, "svd")->name(), name);
  }
}

TEST(Presets, MuonScalesByName) {
  using presets::make, presets::MuonScale;
  for (const auto& [name, scale] : {std::pair{"muon", MuonScale::kAspect},
                                    {"muon(aspect)", MuonScale::kAspect},
                                    {"muon(none)", MuonScale::kNone},
                                    {"muon(match_adam)", MuonScale::kMatchAdam}}) {
    EXPECT_EQ(norms_of(make(name), gpt()), norms_of(presets::muon({.scale = scale}), gpt())) << name;
    expect_radii(make(name, {{"hidden", 0.5}, {"adamw", 0.25}}), gpt(), {0.25, 0.5, 0.25});
    EXPECT_EQ(make(name).momentum().name(), "nesterov(0.95)");
    EXPECT_TRUE(presets::is_muon(name));
  }
  for (const char* name : {"muons", "scion", "", "unscion(muon)", "normuons"})
    EXPECT_FALSE(presets::is_muon(name)) << name;
}

TEST(Presets, NormuonIsMuonWithNormalisedRows) {
  using presets::make;
  for (const auto& [name, own] : {std::pair{"normuon", "muon"}, {"normuon(match_adam)", "muon(match_adam)"}}) {
    const Geometry normuon = make(name, {{"hidden", 0.5}, {"adamw", 0.25}}), muon = make(own);
    EXPECT_TRUE(presets::is_muon(name));
    EXPECT_EQ(norms_of(normuon, gpt()), norms_of(muon, gpt()));
    EXPECT_EQ(normuon.momentum().name(), "nesterov(0.95)");
    expect_radii(normuon, gpt(), {0.25, 0.5, 0.25});
    for (const Rule& rule : normuon.rules()) {
      EXPECT_EQ(rule.normalize.name(), rule.norm.is_adamw() ? "none" : "normuon(0.95)");
      EXPECT_TRUE(rule.decay.is_none());
    }
    for (const Rule& rule : muon.rules()) EXPECT_TRUE(rule.normalize.is_none());
  }
  expect_radii(make("normuon"), gpt(), {3e-4, 0.02, 3e-4});
  const Geometry chosen = presets::normuon({.weight_decay = "cautious(0.2,linear(9,9))", .normalize = "adamuon(0.9)"});
  EXPECT_EQ(chosen.rules()[0].normalize.name(), "adamuon(0.9)");
  EXPECT_EQ(chosen.rules()[2].decay.name(), "cautious(0.2,linear(9,9,0))");
  EXPECT_TRUE(chosen.rules().back().decay.is_none());
}

TEST(Presets, MuonClipHasTheNumbersOfKimiK2) {
  using presets::make, presets::MuonScale;
  const Geometry geometry = make("muonclip");
  EXPECT_EQ(norms_of(geometry, gpt()), norms_of(presets::muon({.scale = MuonScale::kMatchAdam}), gpt()));
  expect_radii(geometry, gpt(), {2e-4, 2e-4, 2e-4});
  expect_radii(make("muonclip", {{"hidden", 0.5}, {"adamw", 0.25}}), gpt(), {0.25, 0.5, 0.25});
  EXPECT_EQ(rules_of(geometry, gpt())[1].decay.name(), "0.1");
  EXPECT_EQ(geometry.momentum().name(), "ema(0.95)");
  EXPECT_TRUE(presets::is_muon("muonclip"));
  EXPECT_INPUT_ERROR(make("muonclip", {{"tau", 1}}),
                     "preset muonclip: unknown radius 'tau'; allowed are hidden, adamw");
}

TEST(Presets, SgdTakesALearningRate) {
  for (const auto& [geometry, radius] : {std::pair{presets::sgd(), "steepest(0.1)"},
                                         {presets::make("sgd"), "steepest(0.1)"},
                                         {presets::sgd(0.5), "steepest(0.5)"},
                                         {presets::make("sgd", {{"all", 0.5}}), "steepest(0.5)"}}) {
    for (const Rule& rule : rules_of(geometry, untied_gpt())) {
      EXPECT_EQ(rule.norm.name(), "euclidean");
      EXPECT_EQ(rule.radius->name(), radius);
    }
    EXPECT_EQ(geometry.momentum().name(), "ema(0.9)");
  }
  EXPECT_INPUT_ERROR(presets::make("sgd", {{"all", -1}}), "steepest radius: eta must be > 0 and finite, got -1");
  EXPECT_INPUT_ERROR(presets::make("sgd", {{"hidden", 1}}), "preset sgd: unknown radius 'hidden'; allowed are all");
}

TEST(Presets, DeterministicGluonUsesTheorem1Radii) {
  const Geometry geometry = presets::deterministic_gluon({.l0 = 1, .l1 = 2, .norms = presets::sign_descent()});
  EXPECT_EQ(geometry.rules()[0].radius->name(), "smooth(1,2)");
  EXPECT_EQ(geometry.rules()[0].norm.name(), "max_entry");
  const Geometry exact = presets::deterministic_gluon({.norms = presets::scion()});
  EXPECT_EQ(exact.rules()[0].norm.name(), "scaled(sqrt(n/m),spectral(svd))");
  EXPECT_FALSE(exact.rules()[0].ball.has_value());
  const Geometry on_spheres = presets::deterministic_gluon({.norms = presets::sphere({.steps = 1})});
  EXPECT_FALSE(on_spheres.rules()[0].sphere.has_value());
  EXPECT_EQ(geometry.momentum().name(), "none");
}

TEST(Presets, ByNameWithRadii) {
  using presets::make;
  expect_radii(make("unscion", {{"hidden", 0.5}, {"head", 7}}), gpt(), {1.08, 0.5, 0.5});
  expect_radii(make("sign_descent", {{"all", 0.5}}), gpt(), {0.5, 0.5, 0.5});
  expect_radii(make("muon", {{"hidden", 0.5}, {"adamw", 0.25}}), gpt(), {0.25, 0.5, 0.25});
  expect_radii(make("scion", {{"gamma", 0.5}, {"hidden", 2}, {"embedding", 4}, {"vector", 6}}), gpt(), {2, 1, 3},
               {4, 2, 6});
  expect_radii(make("scion", {{"conv_gamma", 0.25}, {"conv", 4}, {"head", 8}}), cnn_layers(), {1, 1, 1, 2},
               {4, 4, 4, 8});
  const double law = 0.45 * std::pow(100, -0.4);
  expect_radii(make("sphere", {{"steps", 100}, {"factor", 0.5}, {"embedding", 2}}), gpt(), {2, 0.5 * law, 0.5 * law});
  EXPECT_EQ(make("deterministic_gluon", {{"L0", 3}}).rules()[0].radius->name(), "smooth(3,1)");
  EXPECT_EQ(make("deterministic_gluon", {{"L1", 5}}).rules()[0].radius->name(), "smooth(0,5)");
}

TEST(Presets, DefaultsByName) {
  using presets::make;
  expect_radii(make("sign_descent"), gpt(), {3e-4, 3e-4, 3e-4});
  expect_radii(make("normalized_descent"), gpt(), {0.02, 0.02, 0.02});
  expect_radii(make("adamw"), gpt(), {3e-4, 3e-4, 3e-4});
  EXPECT_EQ(make("adamw").rules()[0].decay.name(), "0.1");
  expect_radii(make("scion"), gpt(), {1.08, 0.018, 0.018}, {3000, 50, 50});
  expect_radii(make("muon"), gpt(), {3e-4, 0.02, 3e-4});
}

TEST(Presets, DeterministicGluonKeepsANamedOrthogonalizer) {
  const Geometry norms({{.norm = "scaled(2,spectral(newton_schulz:5))", .normalize = "normuon(0.95)", .decay = 0.5}});
  const Rule rule = presets::deterministic_gluon({.norms = norms}).rules()[0];
  EXPECT_EQ(rule.norm.name(), "scaled(2,spectral(newton_schulz:5))");
  EXPECT_TRUE(rule.normalize.is_none());
  EXPECT_TRUE(rule.decay.is_none());
}

TEST(Presets, BadInput) {
  EXPECT_INPUT_ERROR(
      presets::make("lion"),
      "unknown name 'lion'; allowed are muon, muon(none), muon(aspect), "
      "muon(match_adam), normuon (with the same scales), muonclip, scion, unscion, sphere, sign_descent, "
      "normalized_descent, sgd, deterministic_gluon, adamw");
  EXPECT_INPUT_ERROR(
      presets::make("normuon(adam)"),
      "unknown scale in 'normuon(adam)'; allowed are normuon(none), normuon(aspect), normuon(match_adam)");
  for (const char* name : {"muon(adam)", "muon()", "muon(none,aspect)"}) {
    EXPECT_INPUT_ERROR(presets::make(name), "unknown scale in '" + std::string(name) + "'; allowed are muon(none), ");
  }
  EXPECT_INPUT_ERROR(presets::make("muon(none"), "preset: expected name(argument,...), got 'muon(none'");
  EXPECT_INPUT_ERROR(presets::make("scion(none)"), "unknown name 'scion(none)'");
  EXPECT_INPUT_ERROR(presets::make("muon(none)", {{"all", 1}}), "preset muon(none): unknown radius 'all'");
  EXPECT_INPUT_ERROR(presets::make("unscion", {{"heads", 1}}),
                     "preset unscion: unknown radius 'heads'; allowed are hidden, embedding, conv, "
                     "untied_embedding, head, vector");
  EXPECT_INPUT_ERROR(presets::make("sign_descent", {{"hidden", 1}}), "unknown radius 'hidden'; allowed are all");
  EXPECT_INPUT_ERROR(presets::make("unscion", {{"head", std::nan("")}}), "radius: must be > 0 and finite, got nan");
  EXPECT_INPUT_ERROR(presets::unscion({.hidden = -1}), "radius: must be > 0 and finite, got -1");
  EXPECT_INPUT_ERROR(presets::scion({.gamma = 2}), "scion: gamma must be in (0, 1], got 2");
  EXPECT_NO_THROW(presets::scion({.gamma = 1, .conv_gamma = 1}));
  EXPECT_INPUT_ERROR(presets::scion({.gamma = 0}), "scion: gamma must be in (0, 1], got 0");
  EXPECT_INPUT_ERROR(presets::scion({.conv_gamma = 2}), "scion: conv_gamma must be in (0, 1], got 2");
  EXPECT_INPUT_ERROR(presets::scion({.conv_gamma = 0}), "scion: conv_gamma must be in (0, 1], got 0");
  EXPECT_INPUT_ERROR(presets::sphere({}),
                     "sphere: steps must be >= 1, the length of the run, from which the relative "
                     "steps follow, got 0");
  EXPECT_INPUT_ERROR(presets::sphere({.hidden = 0.1}), "sphere: steps must be >= 1");
  EXPECT_INPUT_ERROR(presets::sphere({.steps = 9, .factor = 0}), "sphere: factor must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(presets::make("sphere"), "sphere: steps must be >= 1");
  EXPECT_INPUT_ERROR(presets::make("sphere", {{"steps", 1.5}}),
                     "preset sphere: steps must be a whole number in 1..2^53, got 1.5");
  EXPECT_INPUT_ERROR(presets::make("sphere", {{"steps", 1}, {"gamma", 1}}),
                     "preset sphere: unknown radius 'gamma'; allowed are steps, factor, hidden, embedding, conv");
  EXPECT_INPUT_ERROR(presets::deterministic_gluon({.norms = presets::muon()}), "needs a norm for every layer");
}

}  // namespace
}  // namespace gluon
