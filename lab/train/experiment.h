// Experiment: the model and the data that a config names.

#pragma once

#include <memory>

#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/config.h"

namespace gluon::lab {

struct Experiment {
  std::shared_ptr<Model> model;
  std::shared_ptr<const Dataset> dataset;
  int64_t vocabulary = 0;  // of the model; at least dataset->classes(), 0 for images
};

/// Loads the data, then builds and initialises the model with the config's seed. Throws InputError when the data is
/// missing or does not fit the model, or the model does not fit into memory, gradients included if it `trains`.
Experiment make_experiment(const TrainConfig& config, bool trains = true);

/// Loads the data alone. Throws InputError also when it has tokens beyond config.vocabulary (0: any).
std::shared_ptr<const Dataset> make_dataset(const TrainConfig& config);

}  // namespace gluon::lab
