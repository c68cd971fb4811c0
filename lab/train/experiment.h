// Experiment: the model and the data a config asks for.

#pragma once

#include <memory>

#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/config.h"

namespace gluon::lab {

struct Experiment {
  std::shared_ptr<Model> model;
  std::shared_ptr<const Dataset> dataset;
  int64_t vocabulary = 0;  // tokens the model knows; at least dataset->classes(). 0 for images
};

/// Loads the data, then builds and initialises the model with the config's seed. Throws InputError when something
/// is missing or does not fit.
Experiment make_experiment(const TrainConfig& config);

/// The data alone. Throws InputError also when it has tokens beyond config.vocabulary (0: any).
std::shared_ptr<const Dataset> make_dataset(const TrainConfig& config);

}  // namespace gluon::lab
