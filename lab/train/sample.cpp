#include "lab/train/sample.h"

#include <ATen/CPUGeneratorImpl.h>

#include <optional>
#include <vector>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/core/check.h"
#include "lab/data/token_dataset.h"
#include "lab/data/tokenizer.h"
#include "lab/models/generate.h"
#include "lab/models/zoo.h"
#include "lab/train/trainer.h"

namespace gluon::lab {
namespace {

void check_model(const TrainConfig& config) {
  GLUON_CHECK(is_language_model(config.model), "sample: ", config.model, " is not a language model");
}

void check_options(const TrainConfig& config, const SampleOptions& options) {
  check_model(config);
  GLUON_CHECK(!options.prompt.empty(), "sample: the prompt must not be empty");
}

}  // namespace

void check_writes_text(const TrainConfig& config, const Dataset& dataset) {
  check_model(config);
  const TokenStream& stream = dynamic_cast<const TokenDataset&>(dataset).training_stream();
  GLUON_CHECK(!config.vocab.empty() || stream.kind() == "bytes", "sample: the run is trained on token shards, '",
              stream.source(), "', and has no --vocab to turn tokens into text");
}

std::string sample_text(const TrainConfig& config, const Experiment& experiment, const SampleOptions& options) {
  check_options(config, options);
  check_writes_text(config, *experiment.dataset);
  std::optional<Tokenizer> tokenizer;
  if (!config.vocab.empty()) tokenizer.emplace(config.vocab);
  std::vector<int64_t> prompt;
  if (tokenizer) {
    for (const uint16_t token : tokenizer->encode(options.prompt)) prompt.push_back(token);
  } else {
    for (const unsigned char byte : options.prompt) prompt.push_back(byte);
  }
  const auto generator = at::detail::createCPUGenerator(options.seed);
  const std::vector<int64_t> tokens = generate(dynamic_cast<NanoGpt&>(*experiment.model), prompt,
                                               {.count = options.count,
                                                .temperature = options.temperature,
                                                .top_k = options.top_k,
                                                .vocabulary = experiment.dataset->classes()},
                                               generator);
  if (!tokenizer) return {tokens.begin(), tokens.end()};
  return tokenizer->decode(std::vector<uint16_t>(tokens.begin(), tokens.end()));
}

RunSample sample_run(const TrainConfig& config, const SampleOptions& options) {
  check_options(config, options);  // before the data is loaded
  const Experiment experiment = make_experiment(config, /*trains=*/false);
  check_writes_text(config, *experiment.dataset);
  Trainer trainer(config, experiment.model, experiment.dataset);
  const LoadedCheckpoint loaded = load_checkpoint(std::filesystem::path(config.out) / "checkpoint");
  trainer.resume(loaded.checkpoint);
  return {sample_text(config, experiment, options), loaded.warning};
}

}  // namespace gluon::lab
