// From measured radii to the config of the next run.

#pragma once

#include <span>

#include "gluon/fit/radii.h"
#include "lab/train/config.h"

namespace gluon::lab {

/// `run` with the predicted radii in place of its own. A preset with one radius for all gets the least, and
/// deterministic_gluon the largest constants. AdamW has no radii: the next run is unscion, with its default for the
/// first group and the others in the measured relation to it. Throws InputError when the radii were measured in norms
/// that are not the preset's (--smoothness-geometry).
TrainConfig tuned_config(const TrainConfig& run, std::span<const GroupRadius> radii);

}  // namespace gluon::lab
