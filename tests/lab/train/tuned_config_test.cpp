#include "lab/train/tuned_config.h"

#include <gtest/gtest.h>

#include "lab/train/effect.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

GroupRadius group(const std::string& name, double predicted) {
  return {.group = name, .layers = 1, .l0 = 1, .l1 = 2, .gradient = 1, .predicted = predicted, .used = 1};
}

LayerFit layer(const std::string& name, double l0, double l1, const std::string& doubt = "") {
  return {.layer = name, .group = "hidden", .fit = {.l0 = l0, .l1 = l1, .doubt = doubt}};
}

std::string tuned_radius(const std::string& preset, const std::vector<GroupRadius>& radii,
                         const std::string& radius = "", const TrajectoryFit& fits = {}) {
  TrainConfig config;
  config.preset = preset;
  config.radius = radius;
  const TrainConfig next = tuned_config(config, radii, fits);
  EXPECT_NO_THROW(next.validate()) << next.radius;
  return next.preset + ": " + next.radius;
}

TEST(TunedConfig, EveryPresetGetsItsOwnKeys) {
  const std::vector<GroupRadius> llm{group("hidden", 0.5), group("embedding", 3)};
  EXPECT_EQ(tuned_radius("unscion", llm), "unscion: embedding=3,hidden=0.5");
  EXPECT_EQ(tuned_radius("sphere", llm), "sphere: embedding=3,hidden=0.5");
  EXPECT_EQ(tuned_radius("muon", llm), "muon: hidden=0.5");
  EXPECT_EQ(tuned_radius("muon(none)", llm), "muon(none): hidden=0.5");
  EXPECT_EQ(tuned_radius("muon", llm, "hidden=1,adamw=0.25"), "muon: hidden=0.5,adamw=0.25");
  EXPECT_EQ(tuned_radius("sign_descent", llm), "sign_descent: all=0.5");
  std::vector<GroupRadius> steep = llm;
  steep[1].gradient = 8;
  EXPECT_EQ(tuned_radius("sgd", steep), "sgd: all=0.375");  // 3 / 8
  EXPECT_EQ(tuned_radius("scion", llm, "gamma=0.5"), "scion: embedding=6,hidden=1,gamma=0.5");
}

TEST(TunedConfig, DeterministicGluonGetsTheConstantsOfEachLayer) {
  const std::vector<GroupRadius> radii{group("hidden", 0.5)};
  TrajectoryFit fits{.layers = {layer("conv.weight", 0.5, 3), layer("head.weight", 0, 0.03)}};
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "L1=9", fits),
            "deterministic_gluon: conv.weight=smooth(0.5,3),head.weight=smooth(0,0.03)");
  const std::string with_others =
      "deterministic_gluon: conv.weight=smooth(0.5,3),head.weight=smooth(0,0.03),L0=0.5,L1=3";
  fits.layers.push_back(layer("odd.weight", 70, 80, "its samples are scattered"));
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "", fits), with_others);
  fits.layers.back() = layer("still.weight", 0, 0);
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "", fits), with_others);
  fits.layers.pop_back();
  fits.unfitted.push_back({"still.weight", "hidden", "all gradients are zero"});
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "", fits), with_others);
}

TEST(TunedConfig, AnUntiedEmbeddingHasItsOwnKey) {
  EXPECT_EQ(tuned_radius("unscion", {group("hidden", 0.5), group("embedding", 3), group("head", 4)}),
            "unscion: head=4,hidden=0.5,untied_embedding=3");
}

TEST(TunedConfig, AdamWKeepsTheRatiosBetweenGroups) {
  EXPECT_EQ(tuned_radius("adamw", {group("hidden", 0.5), group("embedding", 3)}),
            "unscion: embedding=0.108,hidden=0.018");
}

TEST(TunedConfig, WhatOnlyAdamWUsesIsDropped) {
  TrainConfig config;
  config.preset = "adamw";
  config.clip = 3;
  config.lr = 0.1;
  EXPECT_NO_THROW(check_effect(tuned_config(config, std::vector{group("hidden", 0.5)}, {})));
}

TEST(TunedConfig, RadiiOfOtherNormsAreRejected) {
  TrainConfig config;
  config.smoothness_geometry = "normalized_descent";
  const std::vector<GroupRadius> radii{group("hidden", 0.5)};
  EXPECT_INPUT_ERROR(tuned_config(config, radii, {}), "measured in the norms of normalized_descent");
  EXPECT_INPUT_ERROR(tuned_config(TrainConfig{}, {}, {}), "tune: no radii");
  config.preset = "adamw";
  config.smoothness_geometry.clear();
  const std::vector<GroupRadius> vectors{group("vector", 0.5)};
  EXPECT_INPUT_ERROR(tuned_config(config, vectors, {}),
                     "expected hidden layers, convolutions or an embedding, got group vector");
}

}  // namespace
}  // namespace gluon::lab
