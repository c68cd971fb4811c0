#include "lab/train/trainer.h"

#include <ATen/ATen.h>

#include <array>
#include <sstream>

#include "gluon/kernels/kernels.h"
#include "gluon/smoothness/trajectory.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

TrainConfig longer_config(const std::string& preset = "unscion") {
  TrainConfig config = small_config(preset);
  config.layers = 2;
  config.steps = 12;
  config.eval_every = 6;
  config.save_every = 5;
  return config;
}

TrainSummary run(Trainer& trainer, const std::filesystem::path& path) {
  return run(trainer, RunDirectory::create(path, ""));
}

TrainSummary resume(Trainer& trainer, const std::filesystem::path& path) {
  trainer.resume(load_checkpoint(path / "checkpoint").checkpoint);
  return run(trainer, RunDirectory::reopen(path));
}

/// A terminal that sets `stop` with the second progress line, so that a third step is the last.
struct StoppingTerminal : std::stringbuf {
  int sync() override {
    stop = ++lines >= 2;
    return 0;
  }
  std::atomic<bool> stop{false};
  int lines = 0;
};

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
  TrainConfig config = longer_config();
  config.data = folder.write("words.txt", random_words(20000)).string();
  config.steps = 150;
  config.radius = "hidden=0.05,embedding=1";
  const Experiment experiment = make_experiment(config);
  Trainer trainer(config, experiment.model, experiment.dataset);
  for (int64_t step = 0; step < config.steps; ++step) trainer.step();
  EXPECT_LT(trainer.evaluate(), experiment.dataset->unigram_entropy() / 2);
}

/// Takes the first `steps` of the run that `config` describes, and nothing more.
void run_first(TrainConfig config, int64_t steps, const std::filesystem::path& path) {
  config.schedule = config.resolved_schedule().name();
  config.steps = steps;
  Trainer trainer = make_trainer(config);
  run(trainer, path);
}

TEST(Trainer, ResumesBitForBit) {
  for (const char* preset : {"unscion", "muon", "adamw"}) {
    const TemporaryFolder folder;
    Trainer whole = make_trainer(longer_config(preset));
    run(whole, folder.path() / "whole");
    run_first(longer_config(preset), 7, folder.path() / "run");
    Trainer second = make_trainer(longer_config(preset));
    second.resume(load_checkpoint(folder.path() / "run/checkpoint").checkpoint);
    EXPECT_EQ(second.steps_taken(), 7);
    run(second, RunDirectory::reopen(folder.path() / "run"));
    EXPECT_EQ(second.steps_taken(), 12);
    expect_same_model(second, whole);
  }
}

TEST(Trainer, SamplesSurviveAKillAndAResume) {
  const TemporaryFolder folder;
  TrainConfig config = longer_config();
  config.smoothness_every = 2;
  Trainer whole = make_trainer(config);
  run(whole, folder.path() / "whole");
  const Trajectory expected = read_trajectory(folder.path() / "whole");
  ASSERT_EQ(expected.layers.size(), whole.optimizer().layers().size());
  EXPECT_EQ(expected.estimator, Estimator::kSameBatch);
  // The layers behind projections that start at zero first move at step 1.
  EXPECT_EQ(expected.layers[0].samples.size() + expected.layers.back().samples.size(), 11u);

  run_first(config, 8, folder.path() / "run");
  Trainer second = make_trainer(config);
  resume(second, folder.path() / "run");
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
  TrainConfig large = longer_config();
  TrainConfig small = longer_config();
  large.batch = 8;
  small.batch = 4;
  small.accumulate = 2;
  Trainer one = make_trainer(large);
  Trainer two = make_trainer(small);
  EXPECT_EQ(one.tokens_per_step(), two.tokens_per_step());
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(one.step(), two.step(), 1e-4);
}

TEST(Trainer, AStoppedRunLeavesACheckpointOfItsLastStep) {
  const TemporaryFolder folder;
  const TrainConfig config = longer_config();
  Trainer trainer = make_trainer(config);
  StoppingTerminal terminal;
  const TrainSummary summary = run(trainer, RunDirectory::create(folder.path() / "run", ""), terminal.stop, &terminal);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 3);  // neither evaluated nor saved by the config
  EXPECT_EQ(summary.val, trainer.evaluate());
  EXPECT_EQ(RunDirectory::open(folder.path() / "run").log().size(), 3u);

  Trainer resumed = make_trainer(config);
  EXPECT_FALSE(resume(resumed, folder.path() / "run").interrupted);
  Trainer whole = make_trainer(config);
  run(whole, folder.path() / "whole");
  expect_same_model(resumed, whole);
}

TEST(Trainer, ARunThatIsStoppedBeforeItsFirstStepWritesNothing) {
  const TemporaryFolder folder;
  Trainer trainer = make_trainer(longer_config());
  const TrainSummary summary = run(trainer, RunDirectory::create(folder.path() / "run", ""), true);
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.steps, 0);
  EXPECT_FALSE(has_checkpoint(folder.path() / "run/checkpoint"));
  EXPECT_TRUE(RunDirectory::open(folder.path() / "run").log().empty());
}

TEST(Trainer, EvaluatesAndSavesAsTheConfigSays) {
  const TemporaryFolder folder;
  Trainer trainer = make_trainer(longer_config());
  run(trainer, RunDirectory::create(folder.path() / "run", "steps=12\n"));
  for (const LogRow& row : RunDirectory::open(folder.path() / "run").log()) {
    EXPECT_EQ(row.val.has_value(), row.step % 6 == 0) << row.step;
  }
  for (const int step : {10, 11, 12}) {
    const std::string name = "run/checkpoint/step-000000" + std::to_string(step) + ".safetensors";
    EXPECT_EQ(std::filesystem::exists(folder.path() / name), step != 11) << step;
  }
  const Checkpoint checkpoint = load_checkpoint(folder.path() / "run/checkpoint").checkpoint;
  EXPECT_EQ(checkpoint.text.at("config"), "steps=12\n");
  EXPECT_NE(checkpoint.text.at("data").find("the project's own sources"), std::string::npos);
}

TEST(Trainer, LogRowsHaveTheMeanRadiusOfEachRole) {
  const TemporaryFolder folder;
  TrainConfig config = longer_config();
  config.steps = 2;
  config.radius = "hidden=0.25,embedding=2";
  config.schedule = "constant";
  Trainer trainer = make_trainer(config);
  run(trainer, folder.path() / "run");
  for (const LogRow& row : RunDirectory::open(folder.path() / "run").log()) {
    EXPECT_EQ(row.radii, (std::vector<std::pair<std::string, double>>{{"embedding", 2}, {"hidden", 0.25}}));
    EXPECT_EQ(row.tokens, row.step * config.batch * config.seq);
    EXPECT_TRUE(row.optimizer && *row.optimizer > 0 && *row.optimizer < 1);
  }
}

TEST(Trainer, FullBatchNeedsABatchThatDivides) {
  TrainConfig config = longer_config();
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
      TrainConfig config = longer_config();
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

TEST(Trainer, ABatchBeyondTheGpuIsRejectedWithOneThatFits) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  TrainConfig config = longer_config();
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
