#include "lab/train/tuned_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lab/train/config_fields.h"
#include "lab/train/effect.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

GroupRadius group(const std::string& name, double predicted) {
  return {.group = name, .layers = 1, .l0 = 1, .l1 = 2, .gradient = 1, .predicted = predicted, .used = 1};
}

LayerFit layer(const std::string& name, double l0, double l1, const std::string& doubt = "",
               const std::string& group = "hidden") {
  return {.layer = name, .group = group, .fit = {.l0 = l0, .l1 = l1, .doubt = doubt}};
}

// A block without fits between an embedding and a head that have them.
TrajectoryFit fits_beside_hidden() {
  return {.layers = {layer("wte.weight", 1, 2, "", "embedding"), layer("head.weight", 1, 2, "", "head")},
          .unfitted = {{"h.0.q.weight", "hidden", "too few"}, {"h.1.q.weight", "hidden", "too few"}}};
}

std::string tuned_radius(const std::string& preset, const std::vector<GroupRadius>& radii,
                         const std::string& radius = "", const TrajectoryFit& fits = {}) {
  TrainConfig config;
  config.preset = preset;
  config.radius = radius;
  const TrainConfig next = tuned_config(config, radii, fits).config;
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
  config.weight_decay = 0.25;
  const TunedConfig tuned = tuned_config(config, std::vector{group("hidden", 0.5)}, {});
  EXPECT_NO_THROW(check_effect(tuned.config));
  EXPECT_EQ(tuned.config.weight_decay, TrainConfig{}.weight_decay);
  const std::string rest = " of AdamW; preset unscion moves much farther in a step";
  EXPECT_EQ(tuned.notes, std::vector{"left out: --lr 0.1, --clip 3, --weight-decay 0.25" + rest});

  TrainConfig decayed;
  decayed.preset = "adamw";
  decayed.decay = "cautious(0.5)";
  decayed.radius = "all=0.01";
  const TunedConfig other = tuned_config(decayed, std::vector{group("hidden", 0.5)}, {});
  EXPECT_EQ(other.config.decay, "");
  EXPECT_EQ(other.config.radius, "hidden=0.018");
  EXPECT_EQ(other.notes, std::vector{"left out: --radius all=0.01, --decay cautious(0.5)" + rest});

  const TunedConfig plain = tuned_config({.preset = "adamw"}, std::vector{group("hidden", 0.5)}, {});
  EXPECT_TRUE(plain.notes.empty());
}

TEST(TunedConfig, EntriesOfGroupsThatWereNotTunedAreKept) {
  const std::vector<GroupRadius> embedding{group("embedding", 3)}, hidden{group("hidden", 0.5)};
  EXPECT_EQ(tuned_radius("unscion", embedding, "hidden=power(0.1)"), "unscion: embedding=3,hidden=power(0.1)");
  EXPECT_EQ(tuned_radius("unscion", embedding, "hidden=0.1,embedding=2"), "unscion: embedding=3,hidden=0.1");
  EXPECT_EQ(tuned_radius("unscion", hidden, "hidden=power(0.1)"), "unscion: hidden=0.5");
  EXPECT_EQ(tuned_radius("sphere", embedding, "factor=2,embedding=1"), "sphere: embedding=3,factor=2");
  EXPECT_EQ(tuned_radius("sphere", hidden, "factor=2"), "sphere: hidden=0.5");
  EXPECT_EQ(tuned_radius("scion", embedding, "hidden=40,gamma=0.5"), "scion: embedding=6,hidden=40,gamma=0.5");
  EXPECT_EQ(tuned_radius("muon", hidden, "hidden=1,wte.*=0.25"), "muon: hidden=0.5,wte.*=0.25");
  EXPECT_EQ(tuned_radius("sign_descent", embedding, "all=1,hidden=power(0.1)"),
            "sign_descent: all=3,hidden=power(0.1)");
  EXPECT_EQ(tuned_radius("unscion", {group("scalar", 3)}, "vector=2"), "unscion: vector=3");

  const TunedConfig tuned = tuned_config({.radius = "hidden=power(0.1)"}, embedding, {});
  EXPECT_EQ(tuned.notes, std::vector<std::string>{"kept from the run: --radius hidden=power(0.1)"});
  EXPECT_TRUE(tuned_config({.radius = "embedding=2"}, embedding, {}).notes.empty());
}

TEST(TunedConfig, EntriesOfSeveralGroupsAreKeptForThoseThatWereNotTuned) {
  const std::vector<GroupRadius> radii{group("embedding", 3), group("head", 4)};
  const TrajectoryFit fits = fits_beside_hidden();
  const std::string own = "unscion: head=4,untied_embedding=3";
  EXPECT_EQ(tuned_radius("unscion", radii, "all=power(0.1)", fits), own + ",hidden=power(0.1)");
  EXPECT_EQ(tuned_radius("unscion", radii, "hidden=power(0.2),all=power(0.1)", fits), own + ",hidden=power(0.2)");
  EXPECT_EQ(tuned_radius("unscion", radii, "h.*=power(0.2),all=power(0.1)", fits), own + ",h.*=power(0.2)");
  EXPECT_EQ(tuned_radius("unscion", radii, "*.weight=0.2", fits), own + ",h.0.q.weight=0.2,h.1.q.weight=0.2");
  EXPECT_EQ(tuned_radius("unscion", radii, "h.1.*=0.3,*.weight=0.2", fits), own + ",h.1.*=0.3,h.0.q.weight=0.2");
  EXPECT_EQ(tuned_radius("unscion", radii, "wte.*=0.3,embedding=2", fits), own);
  EXPECT_EQ(tuned_radius("unscion", {radii[0]}, "embedding=2", fits), "unscion: untied_embedding=3,embedding=2");
}

TEST(TunedConfig, DeterministicGluonKeepsConstantsOfOtherGroups) {
  const std::vector<GroupRadius> radii{group("embedding", 3), group("head", 4)};
  const std::string own = "deterministic_gluon: wte.weight=smooth(1,2),head.weight=smooth(1,2)";
  const TrajectoryFit fits = fits_beside_hidden();
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "", fits), own + ",L0=1,L1=2");
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "hidden=smooth(0,9)", fits), own + ",hidden=smooth(0,9)");
  EXPECT_EQ(tuned_radius("deterministic_gluon", radii, "h.0.*=smooth(0,9)", fits),
            own + ",L0=1,L1=2,h.0.*=smooth(0,9)");
}

TEST(TunedConfig, WithoutARadiusForWhatThePresetMovesThereIsNone) {
  const std::vector<GroupRadius> embedding{group("embedding", 3)};
  EXPECT_INPUT_ERROR(tuned_config({.preset = "muon", .radius = "hidden=power(0.1)"}, embedding, {}),
                     "tune: no radius for hidden layers or convolutions, and preset muon moves no others by radii");
}

TEST(TunedConfig, OnlyConfigsOfItsOwnAreReplaced) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(check_tuned_path(folder.path() / "next.toml"));
  EXPECT_NO_THROW(check_tuned_path(folder.path() / "missing/next.toml"));
  TrainConfig config;
  config.data = "a \"quoted\" name.txt";
  config.lr = 0.1;
  EXPECT_NO_THROW(check_tuned_path(folder.write("next.toml", tuned_toml(config))));
  TrainConfig read;
  read_config_toml(folder.path() / "next.toml", read);
  EXPECT_EQ(config_toml(read), config_toml(config));
  for (const std::string name : {"config.toml", "log.csv", "smoothness.csv", "facts.json", "status.json", "report.html",
                                 "events.out.tfevents.gluon", "checkpoint"}) {
    EXPECT_INPUT_ERROR(check_tuned_path(folder.path() / name), "tune: --out must not be the " + name + " of a run");
  }
  const std::string whole = config_toml(config);  // as gluon train writes it, and older versions of gluon tune did
  for (const std::string& text : {std::string(), std::string("steps=4\n"), std::string("# by gluon tune\nsteps=4\n"),
                                  std::string("step-00000003.safetensors\n"), std::string("\xff"), whole}) {
    EXPECT_INPUT_ERROR(
        check_tuned_path(folder.write("latest", text)),
        "latest exists and is not a config that gluon tune wrote, with the first line '# by gluon tune'; move it "
        "away or choose another --out");
  }
  EXPECT_INPUT_ERROR(check_tuned_path(folder.path()), "exists and is not a config");
  EXPECT_INPUT_ERROR(check_tuned_path("/dev/zero"), "exists and is not a config");
  std::filesystem::create_symlink("nowhere", folder.path() / "link.toml");
  EXPECT_INPUT_ERROR(check_tuned_path(folder.path() / "link.toml"), "exists and is not a config");
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
