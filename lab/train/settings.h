// The settings of a run as people compare them: every default replaced by the value that the run used.
//
//   config.toml              settings
//   layers=0                 layers    4
//   radius=""                radius    hidden=0.018, embedding=1.08
//   schedule=""              schedule  linear(60,18,0)
//   smoothness-mode=""       smoothness-mode  same_batch
//
// What has no effect in the run, such as --clip without AdamW, is left out.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lab/train/config.h"

namespace gluon::lab {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Key and value of each field that has an effect, in the order of config.toml. Throws InputError when the config
/// names a model, a preset or anything else that does not exist.
Settings resolved_settings(const TrainConfig& config);

/// The same without replacing anything, for a config that cannot be resolved.
Settings written_settings(const TrainConfig& config);

}  // namespace gluon::lab
