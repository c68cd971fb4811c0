// Flags without an effect: whoever gives one expects something, so it is refused.

#pragma once

#include <span>

#include "gluon/core/layer.h"
#include "lab/train/config.h"

namespace gluon::lab {

/// Throws InputError, naming the flag, when a value other than the default changes nothing in this run.
void check_effect(const TrainConfig& config);

/// The same for each group that --radius names, or for the law of --radius auto: the model may not have such layers.
void check_radius_effect(const TrainConfig& config, std::span<const Layer> layers);

}  // namespace gluon::lab
