#include "lab/train/trainer.h"

#include <ATen/ATen.h>

#include <array>
#include <sstream>
#include <vector>

#include "gluon/kernels/kernels.h"
#include "gluon/smoothness/trajectory.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    config_.layers = 2;
    config_.steps = 12;
    config_.eval_every = 6;
    config_.save_every = 5;
  }

  RunDirectory create(const std::string& config = "") const { return RunDirectory::create(path_, config); }
  std::vector<LogRow> log() const { return RunDirectory::open(path_).log(); }

  /// The end of a run in the folder `name`; of its first `steps`, if given, and nothing more.
  Checkpoint trained(const std::string& name, int64_t steps = 0) const {
    TrainConfig config = config_;
    config.schedule = config.resolved_schedule().name();
    if (steps > 0) config.steps = steps;
    Trainer trainer = make_trainer(config);
    run(trainer, RunDirectory::create(folder_.path() / name, ""));
    return trainer.checkpoint();
  }

  TrainSummary resume(Trainer& trainer) const {
    trainer.resume(load_checkpoint(path_ / "checkpoint").checkpoint);
    return run(trainer, RunDirectory::reopen(path_));
  }

  TrainConfig config_ = small_config();
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "run";
};

/// A terminal that sets `stop` with the second progress line, so that a third step is the last.
struct StoppingTerminal : std::stringbuf {
  int sync() override {
    stop = ++lines >= 2;
    return 0;
  }
  std::atomic<bool> stop{false};
  int lines = 0;
};

void expect_same_model(const Checkpoint& first, const Checkpoint& second) {
  ASSERT_EQ(first.model.size(), second.model.size());
  for (const auto& [name, tensor] : first.model) EXPECT_TRUE(tensor.equal(second.model.at(name))) << name;
  for (const auto& [name, tensor] : first.optimizer.tensors) {
    EXPECT_TRUE(tensor.equal(second.optimizer.tensors.at(name))) << name;
  }
}

// Words in random order: within a word the next letter is certain, or nearly.
std::string random_words(int count) {
  constexpr std::array kWords{"gradient", "momentum", "spectral", "radius", "layer",
                              "matrix",   "oracle",   "ball",     "step",   "dual"};
  uint32_t state = 1;
  std::string text;
  for (int i = 0; i < count; ++i) {
    state = 1664525 * state + 1013904223;
    text += std::string(kWords[(state >> 16) % kWords.size()]) + ' ';
  }
  return text;
}

TEST_F(TrainerTest, TheLossFallsFarBelowTheUnigramEntropy) {
  config_.data = folder_.write("words.txt", random_words(20000)).string();
  config_.steps = 150;
  config_.radius = "hidden=0.05,embedding=1";
  const Experiment experiment = make_experiment(config_);
  Trainer trainer(config_, experiment.model, experiment.dataset);
  for (int64_t step = 0; step < config_.steps; ++step) trainer.step();
  EXPECT_LT(trainer.evaluate(), experiment.dataset->unigram_entropy() / 2);
}

TEST_F(TrainerTest, ResumesBitForBit) {
  for (const std::string preset : {"unscion", "muon", "sgd", "adamw"}) {
    config_.preset = preset;
    const Checkpoint whole = trained("whole " + preset);
    trained("run " + preset, 7);
    Trainer second = make_trainer(config_);
    second.resume(load_checkpoint(folder_.path() / ("run " + preset) / "checkpoint").checkpoint);
    EXPECT_EQ(second.steps_taken(), 7);
    run(second, RunDirectory::reopen(folder_.path() / ("run " + preset)));
    EXPECT_EQ(second.steps_taken(), 12);
    expect_same_model(second.checkpoint(), whole);
  }
}

// The steps of preset sphere follow from the length of the run, so this run is stopped, not shortened.
TEST_F(TrainerTest, ResumesOnSpheresBitForBit) {
  config_.preset = "sphere";
  Trainer whole = make_trainer(config_), first = make_trainer(config_), second = make_trainer(config_);
  for (int step = 0; step < 12; ++step) whole.step();
  for (int step = 0; step < 7; ++step) first.step();
  second.resume(first.checkpoint());
  for (int step = 7; step < 12; ++step) second.step();
  expect_same_model(second.checkpoint(), whole.checkpoint());
}

TEST_F(TrainerTest, RunsOnSpheresForgetTheScaleOfTheirStart) {
  config_.preset = "sphere";
  std::vector<double> expected;
  for (const double scale : {1.0, 0.01, 100.0}) {
    const Experiment experiment = make_experiment(config_);
    for (Layer& layer : experiment.model->layers()) {
      const at::NoGradGuard no_grad;
      if (layer.role == Role::kHidden) layer.parameter.mul_(scale);
    }
    Trainer trainer(config_, experiment.model, experiment.dataset);
    for (int step = 0; step < 12; ++step) {
      const double loss = trainer.step();
      if (scale == 1) expected.push_back(loss);
      EXPECT_NEAR(loss, expected[static_cast<std::size_t>(step)], 1e-3) << scale << " step " << step;
    }
  }
  EXPECT_LT(expected.back(), expected.front() - 0.5);
}

TEST_F(TrainerTest, SamplesSurviveAKillAndAResume) {
  config_.smoothness_every = 2;
  const Checkpoint whole = trained("whole");
  const Trajectory expected = read_trajectory(folder_.path() / "whole");
  EXPECT_EQ(expected.estimator, Estimator::kSameBatch);
  // The layers behind projections that start at zero first move at step 1.
  EXPECT_EQ(expected.layers[0].samples.size() + expected.layers.back().samples.size(), 11u);

  trained("run", 8);
  Trainer second = make_trainer(config_);
  resume(second);
  expect_same_model(second.checkpoint(), whole);
  ASSERT_EQ(expected.layers.size(), second.optimizer().layers().size());
  const Trajectory resumed = read_trajectory(path_);
  for (std::size_t i = 0; i < expected.layers.size(); ++i) {
    const auto& [layer, group, norm, dual, samples] = expected.layers[i];
    EXPECT_EQ(resumed.layers[i].layer, layer);
    ASSERT_EQ(resumed.layers[i].samples.size(), samples.size());
    for (std::size_t k = 0; k < samples.size(); ++k) {
      EXPECT_EQ(resumed.layers[i].samples[k].step, samples[k].step);
      EXPECT_EQ(resumed.layers[i].samples[k].smoothness, samples[k].smoothness);
    }
  }
}

TEST_F(TrainerTest, SamplesBeginAtTheStartAlsoAfterAResume) {
  config_.smoothness_every = 2;
  config_.smoothness_start = 5;
  trained("run", 8);
  Trainer second = make_trainer(config_);
  resume(second);
  for (const LayerTrajectory& layer : read_trajectory(path_).layers) {
    std::vector<int64_t> steps;
    for (const Sample& sample : layer.samples) steps.push_back(sample.step);
    EXPECT_EQ(steps, (std::vector<int64_t>{7, 9, 11})) << layer.layer;  // one step after 6, 8 and 10
  }
}

TEST_F(TrainerTest, AccumulationIsTheLargerBatch) {
  config_.batch = 8;
  Trainer one = make_trainer(config_);
  config_.batch = 4;
  config_.accumulate = 2;
  Trainer two = make_trainer(config_);
  EXPECT_EQ(one.tokens_per_step(), two.tokens_per_step());
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(one.step(), two.step(), 1e-4);
}

TEST_F(TrainerTest, AStoppedRunLeavesACheckpointOfItsLastStep) {
  Trainer trainer = make_trainer(config_);
  StoppingTerminal terminal;
  const TrainSummary summary = run(trainer, create(), terminal.stop, &terminal);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 3);  // neither evaluated nor saved by the config
  EXPECT_EQ(summary.val, trainer.evaluate());
  EXPECT_EQ(log().size(), 3u);
  Trainer resumed = make_trainer(config_);
  EXPECT_FALSE(resume(resumed).interrupted);
  expect_same_model(resumed.checkpoint(), trained("whole"));
}

TEST_F(TrainerTest, ARunThatIsStoppedBeforeItsFirstStepWritesNothing) {
  Trainer trainer = make_trainer(config_);
  const TrainSummary summary = run(trainer, create(), true);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 0);
  EXPECT_FALSE(has_checkpoint(path_ / "checkpoint"));
  EXPECT_TRUE(log().empty());
}

TEST_F(TrainerTest, WhatWouldFailAtTheFirstCheckpointFailsBeforeTheFirstStep) {
  Trainer trainer = make_trainer(small_config());
  RunDirectory directory = RunDirectory::create(folder_.path() / "run", "steps=3\n");
  folder_.write("run/checkpoint", "in the way");
  EXPECT_INPUT_ERROR(run(trainer, directory), "checkpoint: cannot ");
  EXPECT_EQ(trainer.steps_taken(), 0);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "log.csv"));
}

TEST_F(TrainerTest, EvaluatesAndSavesAsTheConfigSays) {
  Trainer trainer = make_trainer(config_);
  run(trainer, create("steps=12\n"));
  for (const LogRow& row : log()) EXPECT_EQ(row.val.has_value(), row.step % 6 == 0) << row.step;
  for (const int step : {10, 11, 12}) {
    const std::string name = "checkpoint/step-000000" + std::to_string(step) + ".safetensors";
    EXPECT_EQ(std::filesystem::exists(path_ / name), step != 11) << step;
  }
  const Checkpoint checkpoint = load_checkpoint(path_ / "checkpoint").checkpoint;
  EXPECT_EQ(checkpoint.text.at("config"), "steps=12\n");
  EXPECT_NE(checkpoint.text.at("data").find("the project's own sources"), std::string::npos);
}

TEST_F(TrainerTest, LogRowsHaveTheMeanRadiusOfEachRole) {
  config_.steps = 2;
  config_.radius = "hidden=0.25,embedding=2";
  config_.schedule = "constant";
  trained("run");
  for (const LogRow& row : log()) {
    EXPECT_EQ(row.radii, (std::vector<std::pair<std::string, double>>{{"embedding", 2}, {"hidden", 0.25}}));
    EXPECT_EQ(row.tokens, row.step * config_.batch * config_.seq);
    EXPECT_TRUE(row.optimizer && *row.optimizer > 0 && *row.optimizer < 1);
  }
}

TEST_F(TrainerTest, FullBatchNeedsABatchThatDivides) {
  config_.full_batch = true;
  config_.batch = 1 << 20;
  EXPECT_INPUT_ERROR(make_trainer(config_), "--full-batch needs a --batch that divides");
}

TEST_F(TrainerTest, AGpuThatDoesNotExistIsNamed) {
  config_.device = "cuda:99";
  EXPECT_INPUT_ERROR(make_trainer(config_), at::getNumGPUs() == 0
                                                ? "--device cuda:99: no CUDA device is available"
                                                : "--device cuda:99: the GPUs that this process sees are cuda:0 to ");
}

TEST_F(TrainerTest, AnotherGpuTrainsAsTheCurrentOne) {
  if (at::getNumGPUs() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  config_.width = 128;
  config_.seq = 64;
  config_.device = "cuda";
  Trainer current = make_trainer(config_);
  config_.device = "cuda:1";
  Trainer other = make_trainer(config_);
  EXPECT_EQ(other.precision(), current.precision());
  for (int64_t step = 0; step < config_.steps; ++step) {
    const double loss = current.step();
    EXPECT_NEAR(other.step(), loss, 1e-3 * loss) << "step " << step;  // attention adds up its gradients in any order
  }
  const double val = current.evaluate();
  EXPECT_NEAR(other.evaluate(), val, 1e-3 * val);
}

TEST_F(TrainerTest, ACudaGraphTrainsAsWithoutIt) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const std::string why = kernels::why_unavailable(at::Device("cuda:0"));
  if (!why.empty()) GTEST_SKIP() << why;
  for (const char* precision : {"float32", "bfloat16"}) {
    for (const int64_t accumulate : {1, 2}) {
      config_.width = 128;
      config_.seq = 64;
      config_.device = "cuda";
      config_.precision = precision;
      config_.accumulate = accumulate;
      config_.smoothness_every = 3;  // looks at the next step's gradients in between
      config_.cuda_graph = true;
      Trainer with = make_trainer(config_);
      config_.cuda_graph = false;
      Trainer without = make_trainer(config_);
      EXPECT_NE(with.precision().find("CUDA graph"), std::string::npos);
      for (int64_t step = 0; step < config_.steps; ++step) {
        const double loss = without.step();
        // Attention adds up its gradients in any order.
        EXPECT_NEAR(with.step(), loss, 1e-3 * loss) << precision << " " << accumulate << " step " << step;
      }
      const double val = without.evaluate();
      EXPECT_NEAR(with.evaluate(), val, 1e-3 * val);
      const Trajectory samples = with.recorder()->take_samples(), expected = without.recorder()->take_samples();
      for (std::size_t layer = 0; layer < expected.layers.size(); ++layer) {
        const std::vector<Sample>& pairs = expected.layers[layer].samples;
        ASSERT_EQ(samples.layers[layer].samples.size(), pairs.size());
        EXPECT_GE(pairs.size(), 1U);
        for (std::size_t i = 0; i < pairs.size(); ++i) {
          EXPECT_NEAR(samples.layers[layer].samples[i].smoothness, pairs[i].smoothness, 0.05 * pairs[i].smoothness)
              << expected.layers[layer].layer << " " << pairs[i].step;
        }
      }
    }
  }
}

TEST_F(TrainerTest, ABatchBeyondTheGpuIsRejectedWithOneThatFits) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  config_.device = "cuda";
  config_.precision = "float32";
  config_.width = 512;
  config_.seq = 256;
  config_.batch = int64_t{1} << 18;  // activations alone would take more than 256 GiB
  Trainer trainer = make_trainer(config_);
  EXPECT_INPUT_ERROR(trainer.step(), "the GPU's memory does not hold --batch 262144; --batch ");
}

}  // namespace
}  // namespace gluon::lab
