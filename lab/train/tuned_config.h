// From measured radii to the config of the next run.

#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gluon/fit/radii.h"
#include "lab/train/config.h"

namespace gluon::lab {

struct TunedConfig {
  TrainConfig config;
  std::vector<std::string> notes;  // one sentence each: which settings stay beside the radii, which are left out
};

/// `run` with the radii that predict_radii() made of `fits`. A preset with one radius for all groups gets the smallest,
/// sgd the smallest learning rate t / |g|*.
/// deterministic_gluon gets the constants of each layer, and the largest of all for layers without a trusted fit. AdamW
/// has no radii: the next run is unscion, with its default for the first group and the measured ratios for the others,
/// and without what was AdamW's: learning rates, decay and clipping.
/// Entries of --radius for groups that `radii` leaves out stay as they are: "hidden=power(0.1)".
/// Throws InputError when no group that the preset moves by a radius has one, and when the radii were measured in other
/// norms than the preset's (--smoothness-geometry).
TunedConfig tuned_config(const TrainConfig& run, std::span<const GroupRadius> radii, const TrajectoryFit& fits);

/// What gluon tune writes: the config after a first line that says who wrote it.
std::string tuned_toml(const TrainConfig& config);

/// Throws InputError unless `path` is free, or holds a config as tuned_toml() writes them, and is no file of a run.
void check_tuned_path(const std::filesystem::path& path);

}  // namespace gluon::lab
