#include "lab/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <fstream>
#include <sstream>

#include "gluon/kernels/kernels.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/data/token_dataset.h"
#include "lab/models/zoo.h"
#include "lab/train/experiment.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

TrainConfig small_config(const std::string& preset = "unscion") {
  TrainConfig config;
  config.preset = preset;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.seq = 32;
  config.steps = 12;
  config.batch = 4;
  config.eval_every = 6;
  config.save_every = 5;
  return config;
}

Trainer make_trainer(const TrainConfig& config) {
  const Experiment experiment = make_experiment(config);
  return {config, experiment.model, experiment.dataset};
}

TrainSummary run(Trainer& trainer, const std::filesystem::path& path, bool resume = false,
                 bool stop = false) {
  RunDirectory directory = resume ? RunDirectory::open(path) : RunDirectory::create(path, "");
  std::ostringstream out;
  Progress progress(out, false);
  const std::atomic<bool> stopped{stop};
  return trainer.run(&directory, &progress, stopped);
}

void expect_same_model(const Trainer& a, const Trainer& b) {
  const Checkpoint first = a.checkpoint();
  const Checkpoint second = b.checkpoint();
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

TEST(Trainer, TheLossFallsFarBelowTheUnigramEntropy) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "words.txt") << random_words(20000);
  TrainConfig config = small_config();
  config.data = (folder.path() / "words.txt").string();
  config.steps = 150;
  config.radius = "hidden=0.05,embedding=1";
  const Experiment experiment = make_experiment(config);
  Trainer trainer(config, experiment.model, experiment.dataset);
  for (int64_t step = 0; step < config.steps; ++step) trainer.step();
  EXPECT_LT(trainer.evaluate(), experiment.dataset->unigram_entropy() / 2);
}

TEST(Trainer, ResumesBitForBit) {
  for (const char* preset : {"unscion", "muon", "adamw"}) {
    const TemporaryFolder folder;
    Trainer whole = make_trainer(small_config(preset));
    run(whole, folder.path() / "whole");

    TrainConfig half = small_config(preset);
    half.schedule = small_config(preset).resolved_schedule().name();
    half.steps = 7;
    Trainer first = make_trainer(half);
    run(first, folder.path() / "run");
    Trainer second = make_trainer(small_config(preset));
    second.resume(load_checkpoint(folder.path() / "run/checkpoint").checkpoint);
    EXPECT_EQ(second.steps_taken(), 7);
    run(second, folder.path() / "run", true);
    EXPECT_EQ(second.steps_taken(), 12);
    expect_same_model(second, whole);
  }
}

TEST(Trainer, SamplesSurviveAKillAndAResume) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  config.smoothness_every = 2;
  Trainer whole = make_trainer(config);
  run(whole, folder.path() / "whole");
  const Trajectory expected = read_trajectory(folder.path() / "whole");
  ASSERT_EQ(expected.layers.size(), whole.optimizer().layers().size());
  EXPECT_EQ(expected.estimator, Estimator::kSameBatch);
  // The layers behind projections that start at zero first move at step 1.
  EXPECT_EQ(expected.layers[0].samples.size() + expected.layers.back().samples.size(), 11u);

  TrainConfig half = config;
  half.schedule = config.resolved_schedule().name();
  half.steps = 8;
  Trainer first = make_trainer(half);
  run(first, folder.path() / "run");
  Trainer second = make_trainer(config);
  second.resume(load_checkpoint(folder.path() / "run/checkpoint").checkpoint);
  run(second, folder.path() / "run", true);
  const Trajectory resumed = read_trajectory(folder.path() / "run");
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

TEST(Trainer, AccumulationIsTheLargerBatch) {
  TrainConfig large = small_config();
  TrainConfig small = small_config();
  large.batch = 8;
  small.batch = 4;
  small.accumulate = 2;
  Trainer one = make_trainer(large);
  Trainer two = make_trainer(small);
  EXPECT_EQ(one.tokens_per_step(), two.tokens_per_step());
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(one.step(), two.step(), 1e-4);
}

TEST(Trainer, AStoppedRunLeavesACheckpointAndSaysSo) {
  const TemporaryFolder folder;
  Trainer trainer = make_trainer(small_config());
  trainer.step();
  const TrainSummary summary = run(trainer, folder.path() / "run", false, true);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 1);
}

TEST(Trainer, ACheckpointOfAnotherRunIsRefused) {
  Trainer trainer = make_trainer(small_config());
  const Checkpoint checkpoint = trainer.checkpoint();
  TrainConfig wider = small_config();
  wider.width = 64;
  Trainer other = make_trainer(wider);
  EXPECT_INPUT_ERROR(other.resume(checkpoint), "the checkpoint belongs to another run");
  Trainer adamw = make_trainer(small_config("adamw"));
  EXPECT_INPUT_ERROR(adamw.resume(checkpoint), "its geometry is");
  TrainConfig radii = small_config();
  radii.radius = "hidden=0.1";
  Trainer farther = make_trainer(radii);
  EXPECT_INPUT_ERROR(farther.resume(checkpoint), "its geometry is 'hidden scaled(sqrt(n/m),spectral) 0.018");
  radii.radius = "hidden=0.123456";  // a wider column
  Trainer wider_column = make_trainer(radii);
  EXPECT_INPUT_ERROR(wider_column.resume(checkpoint),
                     "here it is 'hidden scaled(sqrt(n/m),spectral) 0.123456");
  TrainConfig momentum = small_config();
  momentum.momentum = "ema(0.5)";
  Trainer heavier = make_trainer(momentum);
  EXPECT_INPUT_ERROR(heavier.resume(checkpoint), "its momentum is 'ema(0.9)', here it is 'ema(0.5)'");
  Checkpoint silent = checkpoint;
  silent.text.erase("seed");
  EXPECT_INPUT_ERROR(trainer.resume(silent), "does not say its seed");
}

TEST(Trainer, TheCheckpointHoldsConfigAndData) {
  const TemporaryFolder folder;
  Trainer trainer = make_trainer(small_config());
  RunDirectory directory = RunDirectory::create(folder.path() / "run", "steps=12\n");
  std::ostringstream out;
  Progress progress(out, false);
  trainer.run(&directory, &progress, std::atomic<bool>{false});
  const Checkpoint checkpoint = load_checkpoint(directory.checkpoints()).checkpoint;
  EXPECT_EQ(checkpoint.text.at("config"), "steps=12\n");
  EXPECT_NE(checkpoint.text.at("data").find("the project's own sources"), std::string::npos);
}

TEST(Trainer, DataBeyondTheVocabularyIsRefused) {
  TrainConfig config = small_config();
  config.vocabulary = 100;
  EXPECT_INPUT_ERROR(make_experiment(config), "needs a vocabulary of 256, the model has 100");
}

TEST(Trainer, FullBatchNeedsABatchThatDivides) {
  TrainConfig config = small_config();
  config.full_batch = true;
  config.batch = 1 << 20;
  EXPECT_INPUT_ERROR(make_trainer(config), "--full-batch needs a --batch that divides");
}

TEST(Trainer, ACudaGraphTrainsAsWithoutIt) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  const std::string why = kernels::why_unavailable(at::Device("cuda:0"));
  if (!why.empty()) GTEST_SKIP() << why;
  for (const char* precision : {"float32", "bfloat16"}) {
    for (const int64_t accumulate : {1, 2}) {
      TrainConfig config = small_config();
      config.width = 128;
      config.seq = 64;
      config.device = "cuda";
      config.precision = precision;
      config.accumulate = accumulate;
      config.smoothness_every = 3;  // looks at the next step's gradients in between
      Trainer with = make_trainer(config);
      config.cuda_graph = false;
      Trainer without = make_trainer(config);
      EXPECT_NE(with.precision().find("CUDA graph"), std::string::npos);
      for (int64_t step = 0; step < config.steps; ++step) {
        const double loss = without.step();
        // Attention adds up its gradients in any order.
        EXPECT_NEAR(with.step(), loss, 1e-3 * loss) << precision << " " << accumulate << " step " << step;
      }
      const double val = without.evaluate();
      EXPECT_NEAR(with.evaluate(), val, 1e-3 * val);
      const Trajectory samples = with.recorder()->take_samples(),
                       expected = without.recorder()->take_samples();
      for (std::size_t layer = 0; layer < expected.layers.size(); ++layer) {
        const std::vector<Sample>& pairs = expected.layers[layer].samples;
        ASSERT_EQ(samples.layers[layer].samples.size(), pairs.size());
        EXPECT_GE(pairs.size(), 1U);
        for (std::size_t i = 0; i < pairs.size(); ++i) {
          EXPECT_NEAR(samples.layers[layer].samples[i].smoothness, pairs[i].smoothness,
                      0.05 * pairs[i].smoothness)
              << expected.layers[layer].layer << " " << pairs[i].step;
        }
      }
    }
  }
}

TEST(Trainer, ABatchBeyondTheGpuIsRefusedWithOneThatFits) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  TrainConfig config = small_config();
  config.device = "cuda";
  config.precision = "float32";
  config.width = 512;
  config.seq = 256;
  config.batch = int64_t{1} << 18;  // activations alone would take more than 256 GiB
  Trainer trainer = make_trainer(config);
  EXPECT_INPUT_ERROR(trainer.step(), "the GPU's memory does not hold --batch 262144; --batch ");
}

}  // namespace
}  // namespace gluon::lab
