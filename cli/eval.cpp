#include <iomanip>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "lab/train/config_fields.h"
#include "lab/train/experiment.h"
#include "lab/train/trainer.h"

namespace gluon::cli {

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Validation loss and accuracy of a run, on its own or other data");
  auto run = std::make_shared<std::string>();
  auto data = std::make_shared<std::string>();
  command->add_option("run", *run, "Run directory")->required();
  command->add_option("--data", *data, "Other data of the same kind");
  command->callback([run, data] {
    lab::TrainConfig config = lab::read_run_config(*run);
    lab::Experiment experiment = lab::make_experiment(config);
    const LoadedCheckpoint loaded = load_checkpoint(std::filesystem::path(*run) / "checkpoint");
    if (!loaded.warning.empty()) std::cerr << "gluon: " << loaded.warning << '\n';
    auto trainer = std::make_unique<lab::Trainer>(config, experiment.model, experiment.dataset);
    trainer->resume(loaded.checkpoint);
    if (!data->empty()) {
      config.data = *data;
      config.vocabulary = experiment.vocabulary;
      config.full_batch = false;  // no training: the batch need not divide the other data
      config.smoothness_mode.clear();
      experiment.dataset = lab::make_dataset(config);
      trainer = std::make_unique<lab::Trainer>(config, experiment.model, experiment.dataset);
    }
    std::cout << "step " << loaded.checkpoint.step << ", " << experiment.dataset->describe() << '\n'
              << std::fixed << std::setprecision(4) << "validation loss  " << trainer->evaluate() << '\n'
              << "accuracy         " << std::setprecision(2) << 100 * trainer->accuracy() << " %\n";
  });
}

}  // namespace gluon::cli
