// RunIdentity: what makes two runs the same, so that one can go on where the other was saved.

#pragma once

#include <map>
#include <string>

#include "lab/train/config.h"

namespace gluon::lab {

/// What must not change when a run resumes from a checkpoint, as text by part: single fields of the config, such as
/// model and seed; geometry, momentum, orthogonalizer and batch, which follow from several fields and the model. The
/// table of config fields (config_fields.h) says which part each field belongs to.
using RunIdentity = std::map<std::string, std::string>;

/// The part of runs whose radii follow from --steps, which then must not change.
inline constexpr const char* kHorizon = "horizon";

/// The parts that follow from the config alone, defaults resolved.
RunIdentity config_identity(const TrainConfig& config);

/// Throws InputError, naming the part and the first line that differs, unless `saved`, the text of a checkpoint, agrees
/// with all of `expected`.
void check_same_run(const RunIdentity& expected, const RunIdentity& saved);

}  // namespace gluon::lab
