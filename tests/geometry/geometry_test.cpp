#include "gluon/geometry/geometry.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

std::vector<Layer> small_gpt() {
  return {{"wte.weight", at::randn({50, 8}), Role::kEmbedding},
          {"blocks.0.attn.qkv.weight", at::randn({24, 8}), Role::kHidden},
          {"blocks.0.mlp.weight", at::randn({32, 8}), Role::kHidden},
          {"blocks.0.ln.weight", at::randn({8}), Role::kVector}};
}

TEST(Glob, StarsAndQuestionMarks) {
  for (const auto& [pattern, name] : {std::pair{"*", ""},
                                      {"blocks.*.attn.*", "blocks.11.attn.c_q.weight"},
                                      {"*.weight", "a.weight.weight"},
                                      {"h?ad", "head"},
                                      {"a**", "a"},
                                      {"*ab*ab", "aababab"}}) {
    EXPECT_TRUE(glob_match(pattern, name)) << pattern;
  }
  for (const auto& [pattern, name] :
       {std::pair{"h?ad", "hd"}, {"blocks.*.attn", "blocks.1.attn.c_q"}, {"", "a"}, {"a?", "a"}}) {
    EXPECT_FALSE(glob_match(pattern, name)) << pattern;
  }
}

TEST(Geometry, FirstMatchingRuleWins) {
  const Geometry geometry({{.pattern = "*.qkv.weight", .radius = 1},
                           {.role = Role::kHidden, .radius = 2},
                           {.rank = 1, .norm = "euclidean", .radius = 3},
                           {.norm = "adamw", .radius = 4}});
  EXPECT_EQ(geometry.assign(small_gpt()), (std::vector<std::size_t>{3, 0, 1, 2}));
}

TEST(Geometry, BesideAndWithoutLookAtTheOtherLayers) {
  const Geometry geometry(
      {{.role = Role::kEmbedding, .beside = Role::kHead}, {.role = Role::kVector, .without = Role::kConv}, {}});
  auto layers = small_gpt();
  EXPECT_EQ(geometry.assign(layers), (std::vector<std::size_t>{2, 2, 2, 1}));
  layers.push_back({"lm_head.weight", at::randn({50, 8}), Role::kHead});
  layers.push_back({"conv.weight", at::randn({2, 2, 3, 3}), Role::kConv});
  EXPECT_EQ(geometry.assign(layers), (std::vector<std::size_t>{0, 2, 2, 2, 2, 2}));
}

TEST(Geometry, RuleMatchesItsGroupOnly) {
  const Geometry geometry({{.group = 1, .radius = 7}, {}});
  auto layers = small_gpt();
  layers[1].group = 1;
  EXPECT_EQ(geometry.assign(layers), (std::vector<std::size_t>{1, 0, 1, 1}));
}

TEST(Geometry, WithFirstPrependsARule) {
  const Geometry geometry = presets::muon().with_first({.pattern = "*.qkv.*", .radius = 7});
  EXPECT_EQ(geometry.assign(small_gpt())[1], 0);
  EXPECT_EQ(geometry.rules()[0].radius->name(), "7");
  EXPECT_EQ(geometry.momentum().name(), presets::muon().momentum().name());
}

TEST(Geometry, UnmatchedLayerIsRejectedByName) {
  const Geometry geometry({{.role = Role::kHidden}});
  EXPECT_INPUT_ERROR(geometry.assign(small_gpt()), "no rule for layer 'wte.weight' (role embedding, shape [50, 8])");
}

TEST(Geometry, BadRulesAreRejected) {
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{}), "expected at least one rule");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.pattern = "never", .norm = "nuclear"}}), "unknown name 'nuclear'");
  EXPECT_INPUT_ERROR(NormChoice(std::shared_ptr<const Norm>()), "Rule: expected a norm, got none");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.radius = 0}}), "radius: must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(Geometry({{.pattern = "a*", .decay = -1}}),
                     "Decay: the weight decay must be >= 0 and finite, got -1");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.decay = INFINITY}}), "weight decay must be >= 0 and finite, got inf");
  for (const auto& [ball, text] : {std::pair{-2.0, "-2"}, {0.0, "0"}, {INFINITY, "inf"}}) {
    EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.ball = ball}}),
                       std::string("ball must be > 0 and finite, got ") + text);
  }
  EXPECT_INPUT_ERROR(
      Geometry({{.decay = 0.1, .ball = 2.0}}),
      "rule '*': a weight decay, a ball and a sphere exclude each other, got weight decay 0.1 and ball 2");
  EXPECT_INPUT_ERROR(Geometry({{.ball = 2.0, .sphere = Sphere()}}), "exclude each other, got ball 2 and sphere auto");
  EXPECT_INPUT_ERROR(Geometry({{.decay = 0.1, .sphere = 3.0}}), "got weight decay 0.1 and sphere 3");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.norm = "adamw", .sphere = Sphere()}}), "AdamW has no sphere");
  EXPECT_INPUT_ERROR((void)Sphere{0.0}, "Sphere: the radius must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR((void)Sphere{INFINITY}, "Sphere: the radius must be > 0 and finite, got inf");
  for (const char* text : {"", "own", "nan", "1x"}) {
    EXPECT_INPUT_ERROR(make_sphere(text), "sphere: expected a number");
  }
  EXPECT_INPUT_ERROR(Geometry({{.norm = "adamw", .ball = 2.0}}), "AdamW has no norm ball");
  EXPECT_INPUT_ERROR(Geometry({{.decay = "cautious(0.1)", .ball = 2.0}}),
                     "exclude each other, got decay cautious(0.1) and ball 2");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.norm = "adamw", .normalize = "normuon(0.9)"}}),
                     "rule '*': AdamW has no direction to normalize, got normuon(0.9)");
  EXPECT_INPUT_ERROR(Geometry({{.normalize = "normuon(0.9)", .ball = 2.0}}),
                     "a ball holds steps along the LMO alone, got normalize normuon(0.9) and ball 2");
  EXPECT_INPUT_ERROR(Geometry(std::vector<Rule>{{.norm = "adamw", .split = "qkv"}}), "it needs no split");
}

TEST(Geometry, SpheresParseBack) {
  for (const char* text : {"auto", "2.5", "1e-05"}) EXPECT_EQ(make_sphere(text).name(), text);
  const NormPtr norm = make_norm("scaled(2,spectral)");
  EXPECT_EQ(make_sphere("auto").radius(*norm, {1, 4, 9, 1}), 1);
  EXPECT_EQ(make_sphere("2.5").radius(*norm, {1, 4, 9, 1}), 2.5);
}

TEST(Geometry, RoutingReportHasOneLinePerRule) {
  const Geometry geometry({{.pattern = "*.qkv.*", .norm = "scaled(sqrt(n/m),spectral)", .radius = 0.5, .split = "qkv"},
                           {.role = Role::kConv},
                           {.role = Role::kHidden, .radius = 0.25, .decay = 0.1},
                           {.norm = "adamw", .radius = 0.001}});
  EXPECT_EQ(geometry.routing_report(small_gpt()),
            "group    norm                        radius  layers    parameters\n"
            "*.qkv.*  scaled(sqrt(n/m),spectral)  0.5          1           192  split qkv\n"
            "hidden   spectral                    0.25         1           256  weight decay 0.1\n"
            "*        adamw                       0.001        2           408\n");
}

TEST(Geometry, RoutingReportTellsNormalisationAndDecay) {
  const Geometry geometry({{.normalize = "normuon(0.95)", .radius = 0.5, .decay = "cautious(0.01,linear(9,9))"}});
  EXPECT_EQ(geometry.routing_report(std::vector<Layer>{{"w", at::zeros({2, 3})}}),
            "group  norm      radius  layers    parameters\n"
            "*      spectral  0.5          1             6  normalize normuon(0.95)  decay "
            "cautious(0.01,linear(9,9,0))\n");
}

TEST(Geometry, RoutingReportTellsTheUsualSplit) {
  const std::vector<Layer> layers{{"a.in_proj_weight", at::zeros({24, 8})}, {"b", at::zeros({8, 8})}};
  EXPECT_NE(Geometry({Rule{}}).routing_report(layers).find("  1 split qkv\n"), std::string::npos);
  for (const Rule& rule : {Rule{.split = "rows:1"}, Rule{.norm = "adamw"}}) {
    EXPECT_EQ(Geometry({rule}).routing_report(layers).find("qkv"), std::string::npos);
  }
}

TEST(Geometry, RoutingReportNamesEverySelectorAndSetting) {
  const std::vector<Layer> layers{{"wte.weight", at::zeros({50, 8}), Role::kEmbedding},
                                  {"head.weight", at::zeros({50, 8}), Role::kHead, 2},
                                  {"ln.weight", at::zeros({8}), Role::kVector}};
  const Geometry geometry({{.role = Role::kEmbedding, .beside = Role::kHead, .norm = "rows", .ball = 2.5},
                           {.group = 2, .norm = "rows", .radius = 1},
                           {.rank = 1, .without = Role::kConv, .norm = "euclidean", .sphere = Sphere()}});
  const std::string report = geometry.routing_report(layers);
  for (const char* text :
       {"\nembedding beside head ", "\ngroup 2 ", "\nrank 1 without conv ", "  ball 2.5\n", "  sphere auto\n"}) {
    EXPECT_NE(report.find(text), std::string::npos) << report;
  }
}

}  // namespace
}  // namespace gluon
