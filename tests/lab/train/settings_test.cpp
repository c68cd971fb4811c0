#include "lab/train/settings.h"

#include <map>

#include "lab/train/config_fields.h"
#include "lab/train/experiment.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

std::map<std::string, std::string> resolved(const TrainConfig& config) {
  const Settings settings = resolved_settings(config);
  return {settings.begin(), settings.end()};
}

TEST(Settings, HoldNoPlaceholders) {
  for (const char* preset : {"unscion", "scion", "sphere", "muon", "muon(none)", "normuon", "sign_descent",
                             "normalized_descent", "sgd", "deterministic_gluon", "adamw"}) {
    for (const char* model : {"nanogpt-tiny", "nanogpt-124m", "cifar-cnn"}) {
      for (const int64_t every : {0, 5}) {
        TrainConfig config;
        config.preset = preset;
        config.model = model;
        config.data = "data";
        config.smoothness_every = every;
        for (const auto& [key, value] : resolved_settings(config)) {
          EXPECT_NE(value, "") << preset << ' ' << model << ' ' << key;
          EXPECT_NE(value, "-1") << preset << ' ' << model << ' ' << key;
          if (key != "seed" && key != "label-smoothing" && key != "weight-decay" && key != "smoothness-start") {
            EXPECT_NE(value, "0") << preset << ' ' << model << ' ' << key;
          }
        }
      }
    }
  }
}

TEST(Settings, AreTheValuesThatTheModelAndTheOptimizerUse) {
  TrainConfig config;
  config.preset = "scion";
  config.steps = 60;
  config.smoothness_every = 5;
  auto settings = resolved(config);
  const Experiment experiment = make_experiment(config);
  int64_t blocks = 0;
  for (const Layer& layer : experiment.model->layers()) blocks += layer.name.ends_with("attn.c_q.weight");
  EXPECT_EQ(settings["layers"], std::to_string(blocks));
  EXPECT_EQ(settings["radius"], "hidden=0.018 in a ball of 50, embedding=1.08 in a ball of 3000");
  EXPECT_EQ(settings["schedule"], "linear(60,18,0)");
  EXPECT_EQ(settings["momentum"], "ema(0.9)");
  EXPECT_EQ(settings["smoothness-mode"], "same_batch");
  EXPECT_EQ(settings["smoothness-geometry"], "scion");
  EXPECT_EQ(settings["preset"], "scion");
  EXPECT_FALSE(settings.contains("lr"));
  EXPECT_FALSE(settings.contains("clip"));

  config.preset = "muon";
  config.lr = 0.01;
  settings = resolved(config);
  EXPECT_EQ(settings["radius"], "hidden=0.02");
  EXPECT_EQ(settings["lr"], "0.01");
  EXPECT_EQ(settings["momentum"], "nesterov(0.95)");

  EXPECT_EQ(settings["normalize"], "none");
  EXPECT_EQ(settings["weight-decay"], "0");
  EXPECT_FALSE(settings.contains("decay"));
  config.decay = "cautious(0.1,warmup(5))";
  config.preset = "normuon";
  settings = resolved(config);
  EXPECT_EQ(settings["normalize"], "normuon(0.95)");
  EXPECT_EQ(settings["decay"], "cautious(0.1,warmup(5))");
  EXPECT_FALSE(settings.contains("weight-decay"));
  config.decay.clear();

  config.preset = "sgd";
  config.lr = 0;
  EXPECT_FALSE(resolved(config).contains("normalize"));
  EXPECT_EQ(resolved(config)["radius"], "hidden=steepest(0.1), embedding=steepest(0.1)");

  config.preset = "muon(match_adam)";
  config.lr = 0.01;
  EXPECT_EQ(resolved(config)["lr"], "0.01");

  EXPECT_EQ(resolved(config)["qk-norm"], "1");
  EXPECT_FALSE(resolved(config).contains("qk-clip"));
  config.preset = "muonclip";
  config.qk_norm = false;
  EXPECT_EQ(resolved(config)["qk-norm"], "0");
  EXPECT_EQ(resolved(config)["qk-clip"], "100");
  config.qk_norm = true;

  config.preset = "adamw";
  config.lr = 0;
  settings = resolved(config);
  EXPECT_EQ(settings["lr"], "0.0003");
  EXPECT_EQ(settings["weight-decay"], "0.1");
  EXPECT_EQ(settings["clip"], "1");
  EXPECT_EQ(settings["smoothness-geometry"], "unscion");
  EXPECT_FALSE(settings.contains("radius"));

  config.preset = "sphere";
  settings = resolved(config);
  EXPECT_EQ(settings["radius"], "hidden=0.0874887 on a sphere, embedding=0.7");
  EXPECT_EQ(settings["schedule"], "linear(60,60,0)");

  config.preset = "unscion";
  config.model = "cifar-cnn";
  settings = resolved(config);
  EXPECT_EQ(settings["radius"], "conv=0.5, vector=0.5, head=50");
  EXPECT_EQ(settings["label-smoothing"], "0.2");
  EXPECT_FALSE(settings.contains("layers"));
}

TEST(Settings, KeepTheOrderOfTheConfig) {
  const Settings settings = resolved_settings({});
  std::size_t at = 0;
  for (const ConfigField& field : config_fields()) {
    if (at < settings.size() && settings[at].first == field.name) ++at;
  }
  EXPECT_EQ(at, settings.size());
}

TEST(Settings, AConfigThatCannotBeResolvedIsShownAsWritten) {
  TrainConfig config;
  config.preset = "nonsense";
  EXPECT_INPUT_ERROR(resolved_settings(config), "preset: unknown name 'nonsense'");
  EXPECT_EQ(written_settings(config).size(), config_fields().size());
}

}  // namespace
}  // namespace gluon::lab
