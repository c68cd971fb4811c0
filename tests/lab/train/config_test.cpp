#include "lab/train/config.h"

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TEST(TrainConfig, TheDefaultsAreValid) { EXPECT_NO_THROW(TrainConfig().validate()); }

TEST(TrainConfig, RadiiReplaceThePresets) {
  TrainConfig config;
  config.radius = "hidden=0.5,embedding=2";
  EXPECT_EQ(config.geometry()
                .routing_report(std::vector<Layer>{{"w", at::zeros({2, 2}), Role::kHidden}})
                .find("0.018"),
            std::string::npos);
  EXPECT_EQ(parse_radii("a=1,b=0.25"), (std::map<std::string, double>{{"a", 1}, {"b", 0.25}}));
  EXPECT_TRUE(parse_radii("").empty());
}

TEST(TrainConfig, TheDefaultScheduleFallsOverTheLastThirtyPercent) {
  TrainConfig config;
  config.steps = 100;
  EXPECT_EQ(config.resolved_schedule().name(), "linear(100,30,0)");
  config.schedule = "constant";
  EXPECT_EQ(config.resolved_schedule().name(), "constant");
}

TEST(TrainConfig, OnlyTheCnnSmoothsItsLabelsUnasked) {
  TrainConfig config;
  EXPECT_EQ(config.resolved_label_smoothing(), 0);
  EXPECT_FALSE(config.smooths_language());
  config.label_smoothing = 0.1;
  EXPECT_TRUE(config.smooths_language());
  config.model = "cifar-cnn";
  EXPECT_FALSE(config.smooths_language());
  config.label_smoothing = -1;
  EXPECT_EQ(config.resolved_label_smoothing(), 0.2);
}

TEST(TrainConfig, LrIsAdamWs) {
  TrainConfig config;
  config.lr = 0.25;
  EXPECT_INPUT_ERROR(config.validate(), "--lr is AdamW's learning rate; preset unscion has radii (--radius)");
  config.preset = "adamw";
  EXPECT_EQ(config.geometry().rules()[0].radius->name(), "0.25");
  config.preset = "muon";
  EXPECT_EQ(config.geometry().rules().back().radius->name(), "0.25");
}

TEST(TrainConfig, WeightDecayGoesToEveryRule) {
  TrainConfig config;
  config.weight_decay = 0.5;
  const Geometry geometry = config.geometry();
  for (const Rule& rule : geometry.rules()) EXPECT_EQ(rule.weight_decay, 0.5);
  config.preset = "scion";
  EXPECT_INPUT_ERROR(config.validate(), "exclude each other");
}

TEST(TrainConfig, WhatWouldHaveNoEffectIsRefused) {
  const auto with = [](auto change) {
    TrainConfig config;
    change(config);
    return config;
  };
  EXPECT_INPUT_ERROR(with([](auto& c) { c.preset = "adamw", c.momentum = "ema(0.1)"; }).validate(),
                     "--momentum: preset adamw has its own, got ema(0.1)");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.preset = "sign_descent", c.orthogonalizer = "svd"; }).validate(),
                     "--orthogonalizer: preset sign_descent has no spectral norm, got svd");
  EXPECT_NO_THROW(with([](auto& c) { c.preset = "muon", c.orthogonalizer = "svd"; }).validate());
  EXPECT_INPUT_ERROR(with([](auto& c) { c.test_images = 5; }).validate(), "are for cifar-cnn");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.model = "cifar-cnn", c.width = 8; }).validate(),
                     "cifar-cnn has no --layers, --width");
}

TEST(TrainConfig, BadValuesAreNamed) {
  const auto with = [](auto change) {
    TrainConfig config;
    change(config);
    return config;
  };
  EXPECT_INPUT_ERROR(with([](auto& c) { c.steps = 0; }).validate(), "--steps must be >= 1, got 0");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.batch = -1; }).validate(),
                     "--batch must be in 1..2147483648, got -1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.accumulate = 0; }).validate(), "--accumulate must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.accumulate = int64_t{1} << 40; }).validate(),
                     "--accumulate must be in");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.parts = int64_t{1} << 62; }).validate(),
                     "--parts must be in 0..65536");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.seq = -4; }).validate(),
                     "--seq must be in 1..16777216, or 0 for the model's own, got -4");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.batch = int64_t{1} << 60; }).validate(), "--batch must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.layers = -3; }).validate(), "--layers must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.width = int64_t{1} << 30; }).validate(), "--width must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.heads = -1; }).validate(), "--heads must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.train_images = -3; }).validate(),
                     "--train-images must be >= 1, or 0 for all, got -3");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.test_images = -3; }).validate(), "--test-images must be >= 1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.eval_every = 0; }).validate(), "--eval-every must be >= 1, got 0");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.save_every = 0; }).validate(), "--save-every must be >= 1, got 0");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.clip = -1; }).validate(), "--clip must be >= 0, got -1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.lr = -1; }).validate(), "--lr must be > 0, got -1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.label_smoothing = 1; }).validate(),
                     "--label-smoothing must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.device = "tpu"; }).validate(),
                     "--device must be cpu or cuda, got 'tpu'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.precision = "int8"; }).validate(),
                     "--precision must be float32 or bfloat16, got 'int8'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.preset = "lion"; }).validate(), "preset: unknown name 'lion'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.momentum = "fast"; }).validate(), "momentum: unknown name 'fast'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.schedule = "up"; }).validate(), "schedule: unknown name 'up'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.orthogonalizer = "qr"; }).validate(),
                     "unknown orthogonalizer 'qr'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.radius = "hidden"; }).validate(),
                     "--radius: expected group=radius,..., got 'hidden'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.radius = "hidden=1,hidden=2"; }).validate(),
                     "--radius: group 'hidden' is given twice");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.radius = "hidden=x"; }).validate(),
                     "--radius: expected a number, got 'x'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.full_batch = true, c.accumulate = 2; }).validate(),
                     "exclude each other");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.vocabulary = -1; }).validate(), "--vocabulary must be in 1..");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.smoothness_every = -1; }).validate(),
                     "--smoothness-every must be >= 1, or 0 for no samples, got -1");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.smoothness_mode = "unknown"; }).validate(),
                     "--smoothness-mode must be consecutive, full or same_batch, got 'unknown'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.smoothness_mode = "full"; }).validate(),
                     "--smoothness-mode full needs --full-batch");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.full_batch = true, c.smoothness_mode = "same_batch"; }).validate(),
                     "--full-batch needs --smoothness-mode full, or none, got same_batch");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.smoothness_geometry = "lion"; }).validate(), "unknown name 'lion'");
  EXPECT_INPUT_ERROR(with([](auto& c) { c.smoothness_dual = "qr"; }).validate(), "'qr'");
}

TEST(TrainConfig, TheEstimatorFollowsTheBatch) {
  TrainConfig config;
  EXPECT_EQ(config.estimator(), Estimator::kSameBatch);
  config.full_batch = true;
  EXPECT_EQ(config.estimator(), Estimator::kFull);
}

}  // namespace
}  // namespace gluon::lab
