#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "lab/models/zoo.h"
#include "lab/train/config_fields.h"
#include "lab/train/experiment.h"
#include "lab/train/trainer.h"

namespace gluon::cli {
namespace {

int64_t validation_tokens(const lab::Dataset& dataset) {
  int64_t examples = 0;
  for (const lab::Batch& batch : dataset.validation(1)) examples += batch.inputs.size(0);
  return examples * dataset.tokens_per_example();
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Validation loss and accuracy of a run, on its own or other data");
  auto run = std::make_shared<std::string>();
  auto data = std::make_shared<std::string>();
  auto tokens = std::make_shared<int64_t>(0);
  command->add_option("run", *run, "Run directory")->required()->check(given_path());
  command->add_option("--data", *data, "Other data of the same kind: all tokens of it, or its test images")
      ->check(given_path());
  command->add_option("--val-tokens", *tokens, "Tokens to validate on (0: all of --data, or as the run)");
  command->callback([run, data, tokens] {
    lab::TrainConfig config = lab::read_run_config(*run);
    GLUON_CHECK(*tokens >= 0, "eval: --val-tokens must be >= 1, or 0 for all, got ", *tokens);
    GLUON_CHECK(*tokens == 0 || lab::is_language_model(config.model), "eval: ", config.model,
                " validates on the test images of its data; it does not take --val-tokens, got ", *tokens);
    lab::Experiment experiment = lab::make_experiment(config, /*trains=*/false);
    if (data->empty() && config.val_data.empty()) {
      const int64_t unseen = validation_tokens(*experiment.dataset);
      GLUON_CHECK(*tokens <= unseen, "eval: the run has not trained on the last ", unseen,
                  " tokens of its data, --val-tokens asks for ", *tokens, "; name other data with --data");
    }
    const LoadedCheckpoint loaded = load_checkpoint(std::filesystem::path(*run) / "checkpoint");
    if (!loaded.warning.empty()) std::cerr << "gluon: " << loaded.warning << '\n';
    auto trainer = std::make_unique<lab::Trainer>(config, experiment.model, experiment.dataset);
    trainer->resume(loaded.checkpoint);
    if (!data->empty() || *tokens != 0) {
      if (!data->empty()) (lab::is_language_model(config.model) ? config.val_data : config.data) = *data;
      config.val_tokens = *tokens;
      config.vocabulary = experiment.vocabulary;
      config.full_batch = false;  // no training: the batch need not divide the other data
      config.smoothness_mode.clear();
      experiment.dataset = lab::make_dataset(config);
      trainer = std::make_unique<lab::Trainer>(config, experiment.model, experiment.dataset);
    }
    const double loss = trainer->evaluate();
    GLUON_CHECK(std::isfinite(loss), "eval: the validation loss of ", *run, " is ", loss,
                ": its weights have diverged");
    std::cout << "step " << loaded.checkpoint.step << ", " << experiment.dataset->describe() << '\n'
              << std::fixed << std::setprecision(4) << "validation loss  " << loss << '\n'
              << "accuracy         " << std::setprecision(2) << 100 * trainer->accuracy() << " %\n";
  });
}

}  // namespace gluon::cli
