#include "lab/train/qk_clipper.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"

namespace gluon::lab {
namespace {

constexpr double kTau = 0.25;  // exceeded from the first steps on

// Radii eight times those that train well, without QK norm: logits grow.
TrainConfig diverging(double tau) {
  TrainConfig config = small_config();
  config.layers = 2;
  config.steps = 30;
  config.radius = "hidden=0.144,embedding=8.64";
  config.schedule = "constant";
  config.qk_norm = false;
  config.qk_clip = tau;
  return config;
}

struct Training {
  explicit Training(const TrainConfig& config)
      : experiment(make_experiment(config)),
        trainer(config, experiment.model, experiment.dataset),
        watched(experiment.model->watch_logits()) {}

  // The largest logit of the step's training passes, before the step moves.
  double step() {
    for (const AttentionLogits& layer : watched) layer.largest.fill_(-INFINITY);
    trainer.step();
    double largest = -INFINITY;
    for (const AttentionLogits& layer : watched) largest = std::max(largest, layer.largest.max().item<double>());
    return largest;
  }

  Experiment experiment;
  Trainer trainer;
  std::vector<AttentionLogits> watched;
};

void expect_same_weights(const Trainer& first, const Trainer& second, bool same = true) {
  const Checkpoint one = first.checkpoint(), two = second.checkpoint();
  bool all = true;
  for (const auto& [name, tensor] : one.model) all = all && tensor.equal(two.model.at(name));
  EXPECT_EQ(all, same);
}

// The logits of a step are those before it, so they exceed tau by what the step and another batch add: much while steps
// are eight times too long, what batches differ by when they are short.
TEST(QkClipper, KeepsTheLogitsOfADivergingRunAtTau) {
  constexpr double kLarge = 10;
  TrainConfig config = diverging(kLarge);
  config.schedule = "linear(80,80)";
  Training clipped(config);
  config.qk_clip = 0;
  Training free(config);
  double largest = 0, last = 0, without = 0;
  for (int step = 0; step < 80; ++step) {
    last = clipped.step();
    largest = std::max(largest, last);
    without = free.step();
  }
  EXPECT_LT(largest, 2 * kLarge);
  EXPECT_LT(last, 1.25 * kLarge);
  EXPECT_GT(without, 2 * kLarge);
}

TEST(QkClipper, HeadsBelowTauTrainAsWithoutIt) {
  Training far(diverging(1e6)), free(diverging(0)), near(diverging(kTau));
  for (int step = 0; step < 6; ++step) {
    far.step();
    free.step();
    near.step();
  }
  expect_same_weights(far.trainer, free.trainer);
  expect_same_weights(near.trainer, free.trainer, false);
}

TEST(QkClipper, ResumesBitForBit) {
  Training whole(diverging(kTau)), first(diverging(kTau)), second(diverging(kTau));
  for (int step = 0; step < 8; ++step) whole.step();
  for (int step = 0; step < 5; ++step) first.step();
  second.trainer.resume(first.trainer.checkpoint());
  for (int step = 5; step < 8; ++step) second.step();
  expect_same_weights(second.trainer, whole.trainer);
}

TEST(QkClipper, ARunKeepsItsTauAndItsNorm) {
  const Checkpoint checkpoint = Training(diverging(kTau)).trainer.checkpoint();
  EXPECT_INPUT_ERROR(Training(diverging(0)).trainer.resume(checkpoint), "its qk-clip is '0.25', this run has '0'");
  EXPECT_INPUT_ERROR(Training(diverging(3)).trainer.resume(checkpoint), "its qk-clip is '0.25', this run has '3'");
  TrainConfig with_norm = diverging(-1);
  with_norm.qk_norm = true;
  EXPECT_INPUT_ERROR(Training(with_norm).trainer.resume(checkpoint), "its qk-clip is '0.25', this run has '0'");
}

// Looking ahead for a sample makes passes whose logits do not count.
TEST(QkClipper, TrainsTheSameWithSmoothnessSamples) {
  TrainConfig measured = diverging(kTau);
  measured.smoothness_every = 2;
  Training plain(diverging(kTau)), watched(measured);
  for (int step = 0; step < 6; ++step) {
    plain.step();
    watched.step();
  }
  expect_same_weights(watched.trainer, plain.trainer);
}

TEST(QkClipper, TakesTheLargestLogitOfAllBatchesOfAStep) {
  TrainConfig config = diverging(kTau);
  config.batch = 8;
  Training one(config);
  config.batch = 4;
  config.accumulate = 2;
  Training two(config);
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(one.step(), two.step(), 1e-3);
}

TEST(QkClipper, ARefusedStepClipsNothing) {
  Training run(diverging(1e-3));
  const at::Tensor query = run.watched[0].query, before = query.detach().clone();
  {
    const at::NoGradGuard no_grad;
    run.experiment.model->layers().back().parameter[0].fill_(std::nan(""));  // the embedding's first token
  }
  EXPECT_THROW(run.step(), NonFiniteGradient);
  EXPECT_TRUE(query.equal(before));
}

TEST(QkClipper, PresetMuonClipClipsAt100) {
  TrainConfig config = diverging(-1);
  config.preset = "muonclip";
  config.radius = "hidden=3";
  Training run(config);
  config.qk_clip = 0;
  Training free(config);
  double without = 0;
  for (int step = 0; step < 10; ++step) {
    run.step();
    without = std::max(without, free.step());
  }
  EXPECT_GT(without, 100);
  expect_same_weights(run.trainer, free.trainer, false);
}

}  // namespace
}  // namespace gluon::lab
