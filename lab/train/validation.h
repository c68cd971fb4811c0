// The validation examples of a dataset, shared by all ranks.

#pragma once

#include "lab/data/dataset.h"
#include "lab/models/model.h"
#include "lab/train/rank_share.h"

namespace gluon::lab {

/// Mean loss in batches of `batch`, the model in evaluation mode. All ranks call it together; the buffers of the first
/// one count.
double validation_loss(Model& model, const Dataset& dataset, int64_t batch, const RankShare& share);

/// Share of targets that have the largest logit, in the same way.
double validation_accuracy(Model& model, const Dataset& dataset, int64_t batch, const RankShare& share);

}  // namespace gluon::lab
