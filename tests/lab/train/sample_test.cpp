#include "lab/train/sample.h"

#include "lab/data/token_shard.h"
#include "lab/train/config_fields.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

TEST(Sample, TheModelInMemoryWritesWhatItsCheckpointWrites) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  config.radius = "hidden=0.1,embedding=1";
  config.out = (folder.path() / "run").string();
  const Experiment experiment = make_experiment(config);
  const std::string untrained = sample_text(config, experiment, {.count = 40});
  Trainer trainer(config, experiment.model, experiment.dataset);
  run(trainer, RunDirectory::create(config.out, config_toml(config)));
  const std::string trained = sample_text(config, experiment, {.count = 40});
  EXPECT_EQ(trained.size(), 40u);
  EXPECT_NE(trained, untrained);
  EXPECT_EQ(trained, sample_run(read_run_config(config.out), {.count = 40}).text);
}

TEST(Sample, BadInputIsNamed) {
  TrainConfig config = small_config();
  config.out = "/nonexistent";
  EXPECT_INPUT_ERROR(sample_run(config, {.prompt = ""}), "sample: the prompt must not be empty");
  EXPECT_INPUT_ERROR(sample_run(config, {}), "/nonexistent/checkpoint");
  config.model = "cifar-cnn";
  EXPECT_INPUT_ERROR(sample_run(config, {}), "sample: cifar-cnn is not a language model");
}

TEST(Sample, TokensWithoutAVocabularyAreNoText) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  const std::filesystem::path shard = folder.path() / "tokens.bin";
  write_token_shard(shard, std::vector<uint16_t>(300, 7));
  config.data = shard.string();
  config.out = "/nonexistent";
  const std::string sentence =
      "sample: the run is trained on token shards, '" + config.data + "', and has no --vocab to turn tokens into text";
  const Experiment experiment = make_experiment(config);
  EXPECT_INPUT_ERROR(check_writes_text(config, *experiment.dataset), sentence);
  EXPECT_INPUT_ERROR(sample_text(config, experiment, {}), sentence);
  EXPECT_INPUT_ERROR(sample_run(config, {}), sentence);  // before the checkpoint is read
  config.data.clear();
  EXPECT_NO_THROW(check_writes_text(config, *make_experiment(config).dataset));
}

}  // namespace
}  // namespace gluon::lab
