#include "lab/train/config.h"

#include <limits>

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TEST(TrainConfig, TheDefaultsAreValid) { EXPECT_NO_THROW(TrainConfig().validate()); }

TEST(TrainConfig, RadiiReplaceThePresets) {
  TrainConfig config;
  config.radius = "hidden=0.5,embedding=2";
  const std::string report =
      config.geometry().routing_report(std::vector<Layer>{{"w", at::zeros({2, 2}), Role::kHidden}});
  EXPECT_NE(report.find("0.5"), std::string::npos);
  EXPECT_EQ(report.find("0.018"), std::string::npos);
  EXPECT_EQ(parse_radii("a=1,b=0.25"), (std::map<std::string, double>{{"a", 1}, {"b", 0.25}}));
  EXPECT_TRUE(parse_radii("").empty());
}

TEST(TrainConfig, TheDefaultScheduleDecaysOverTheLastThirtyPercent) {
  TrainConfig config;
  config.steps = 100;
  EXPECT_EQ(config.resolved_schedule().name(), "linear(100,30,0)");
  config.schedule = "constant";
  EXPECT_EQ(config.resolved_schedule().name(), "constant");
}

TEST(TrainConfig, OnlyTheCnnSmoothsLabelsByDefault) {
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

TEST(TrainConfig, LrIsForAdamW) {
  TrainConfig config;
  config.lr = 0.25;
  EXPECT_INPUT_ERROR(config.validate(), "--lr is the learning rate of AdamW; preset unscion takes --radius instead");
  config.preset = "adamw";
  EXPECT_EQ(config.geometry().rules()[0].radius->name(), "0.25");
  config.preset = "muon";
  EXPECT_EQ(config.geometry().rules().back().radius->name(), "0.25");
}

TEST(TrainConfig, WeightDecayAppliesToEveryRule) {
  TrainConfig config;
  config.weight_decay = 0.5;
  const Geometry geometry = config.geometry();
  EXPECT_FALSE(geometry.rules().empty());
  for (const Rule& rule : geometry.rules()) EXPECT_EQ(rule.weight_decay, 0.5);
  config.preset = "scion";
  EXPECT_INPUT_ERROR(config.validate(), "exclude each other");
}

TEST(TrainConfig, TheEstimatorFollowsTheBatch) {
  TrainConfig config;
  EXPECT_EQ(config.estimator(), Estimator::kSameBatch);
  config.full_batch = true;
  EXPECT_EQ(config.estimator(), Estimator::kFull);
}

TEST(TrainConfig, AnOrthogonalizerNeedsASpectralNorm) {
  TrainConfig config;
  config.preset = "muon";
  config.orthogonalizer = "svd";
  EXPECT_NO_THROW(config.validate());
  config.preset = "sign_descent";
  EXPECT_INPUT_ERROR(config.validate(), "--orthogonalizer has no effect on preset sign_descent");
}

struct BadConfig {
  void (*change)(TrainConfig& config);
  const char* message;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const BadConfig kBadConfigs[] = {
    {[](auto& c) { c.steps = 0; }, "--steps must be >= 1, got 0"},
    {[](auto& c) { c.batch = -1; }, "--batch must be in 1..2147483648, got -1"},
    {[](auto& c) { c.batch = int64_t{1} << 60; }, "--batch must be in 1.."},
    {[](auto& c) { c.accumulate = 0; }, "--accumulate must be in 1.."},
    {[](auto& c) { c.accumulate = int64_t{1} << 40; }, "--accumulate must be in"},
    {[](auto& c) { c.parts = int64_t{1} << 62; }, "--parts must be in 0..65536"},
    {[](auto& c) { c.seq = -4; }, "--seq must be in 1..16777216, or 0 for the model's default, got -4"},
    {[](auto& c) { c.layers = -3; }, "--layers must be in 1.."},
    {[](auto& c) { c.width = int64_t{1} << 30; }, "--width must be in 1.."},
    {[](auto& c) { c.heads = -1; }, "--heads must be in 1.."},
    {[](auto& c) { c.vocabulary = -1; }, "--vocabulary must be in 1.."},
    {[](auto& c) { c.train_images = -3; }, "--train-images must be >= 1, or 0 for all, got -3"},
    {[](auto& c) { c.test_images = -3; }, "--test-images must be >= 1"},
    {[](auto& c) { c.eval_every = 0; }, "--eval-every must be >= 1, got 0"},
    {[](auto& c) { c.save_every = 0; }, "--save-every must be >= 1, got 0"},
    {[](auto& c) { c.clip = -1; }, "--clip must be >= 0, got -1"},
    {[](auto& c) { c.lr = -1; }, "--lr must be > 0, got -1"},
    {[](auto& c) { c.weight_decay = -kInfinity; }, "--weight-decay must be finite, got -inf"},
    {[](auto& c) { c.label_smoothing = 1; },
     "--label-smoothing must be in [0, 1), or negative for the model's default, got 1"},
    {[](auto& c) { c.label_smoothing = -kInfinity; }, "--label-smoothing must be in [0, 1)"},
    {[](auto& c) { c.device = "tpu"; }, "--device must be cpu or cuda, got 'tpu'"},
    {[](auto& c) { c.precision = "int8"; }, "--precision must be float32 or bfloat16, got 'int8'"},
    {[](auto& c) { c.preset = "lion"; }, "preset: unknown name 'lion'"},
    {[](auto& c) { c.momentum = "fast"; }, "momentum: unknown name 'fast'"},
    {[](auto& c) { c.schedule = "up"; }, "schedule: unknown name 'up'"},
    {[](auto& c) { c.orthogonalizer = "qr"; }, "unknown orthogonalizer 'qr'"},
    {[](auto& c) { c.radius = "hidden"; }, "--radius: expected group=radius,..., got 'hidden'"},
    {[](auto& c) { c.radius = "hidden=1,hidden=2"; }, "--radius: group 'hidden' is given twice"},
    {[](auto& c) { c.radius = "hidden=x"; }, "--radius: expected a number, got 'x'"},
    {[](auto& c) { c.full_batch = true, c.accumulate = 2; }, "exclude each other"},
    {[](auto& c) { c.smoothness_every = -1; }, "--smoothness-every must be >= 1, or 0 for no samples, got -1"},
    {[](auto& c) { c.smoothness_mode = "unknown"; },
     "--smoothness-mode must be consecutive, full or same_batch, got 'unknown'"},
    {[](auto& c) { c.smoothness_mode = "full"; }, "--smoothness-mode full needs --full-batch"},
    {[](auto& c) { c.full_batch = true, c.smoothness_mode = "same_batch"; },
     "--full-batch needs --smoothness-mode full or an empty one, got same_batch"},
    {[](auto& c) { c.smoothness_geometry = "lion"; }, "unknown name 'lion'"},
    {[](auto& c) { c.smoothness_dual = "qr"; }, "'qr'"},
    // Options without an effect on the run.
    {[](auto& c) { c.preset = "adamw", c.momentum = "ema(0.1)"; },
     "--momentum has no effect on preset adamw, got ema(0.1)"},
    {[](auto& c) { c.test_images = 5; }, "--train-images and --test-images need --model cifar-cnn"},
    {[](auto& c) { c.model = "cifar-cnn", c.width = 8; }, "cifar-cnn does not take --layers, --width"},
};

TEST(TrainConfig, BadValuesAreNamed) {
  for (const BadConfig& bad : kBadConfigs) {
    TrainConfig config;
    bad.change(config);
    EXPECT_INPUT_ERROR(config.validate(), bad.message);
  }
}

}  // namespace
}  // namespace gluon::lab
