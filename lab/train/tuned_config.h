// From measured radii to the config of the next run.

#pragma once

#include <span>

#include "gluon/fit/radii.h"
#include "lab/train/config.h"

namespace gluon::lab {

/// `run` with the radii that predict_radii() made of `fits`. A preset with one radius for all groups gets the smallest,
/// sgd the smallest learning rate t / |g|*.
/// deterministic_gluon gets the constants of each layer, and the largest of all for layers without a trusted fit. AdamW
/// has no radii: the next run is unscion, with its default for the first group and the measured ratios for the others.
/// Throws InputError when the radii were measured in other norms than the preset's (--smoothness-geometry).
TrainConfig tuned_config(const TrainConfig& run, std::span<const GroupRadius> radii, const TrajectoryFit& fits);

}  // namespace gluon::lab
