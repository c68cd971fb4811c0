// The identity of a run: what must not change when it resumes from a checkpoint.
//
//   model, seed                        fields of the config
//   geometry, momentum, orthogonalizer, batch     what follows from several fields and the model
//
// The table of config fields (config_fields.h) says which part each field belongs to.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gluon/update/optimizer.h"
#include "lab/train/config.h"

namespace gluon::lab {

using RunIdentity = std::map<std::string, std::string>;  // text by part

RunIdentity run_identity(const TrainConfig& config, const Optimizer& optimizer, int64_t batches_per_step);

/// Throws InputError, naming the part and the first line that differs, unless `saved`, the text of a checkpoint, agrees
/// with all of `expected`.
void check_same_run(const RunIdentity& expected, const RunIdentity& saved);

}  // namespace gluon::lab
