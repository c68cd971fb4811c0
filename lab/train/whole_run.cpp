#include "lab/train/whole_run.h"

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/core/check.h"
#include "lab/train/config_fields.h"
#include "lab/train/effect.h"
#include "lab/train/experiment.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {

bool holds_run(const std::filesystem::path& folder) { return std::filesystem::exists(folder / "config.toml"); }

void check_same_config(const TrainConfig& config, const std::string& origin) {
  GLUON_CHECK(config_toml(read_run_config(config.out)) == config_toml(config), origin, ": ", config.out,
              " holds a run with another config; choose another --out");
}

TrainSummary train_whole(const TrainConfig& config, Progress& progress, const Announce& announce,
                         const std::atomic<bool>& stop) {
  const Experiment experiment = make_experiment(config);
  check_radius_effect(config, experiment.model->layers());
  Trainer trainer(config, experiment.model, experiment.dataset);
  const bool exists = holds_run(config.out);
  RunDirectory directory =
      exists ? RunDirectory::reopen(config.out) : RunDirectory::create(config.out, config_toml(config));
  if (has_checkpoint(directory.checkpoints())) {
    const LoadedCheckpoint loaded = load_checkpoint(directory.checkpoints());
    if (!loaded.warning.empty()) announce(loaded.warning);
    trainer.resume(loaded.checkpoint);
  }
  try {
    RunWriter writer(directory, progress, trainer.recorder(), trainer.steps_taken());
    return trainer.run(&writer, stop);
  } catch (const NonFiniteGradient&) {
    progress.finish();
    throw;
  } catch (...) {
    if (!exists && trainer.steps_taken() == 0) directory.discard();
    throw;
  }
}

}  // namespace gluon::lab
