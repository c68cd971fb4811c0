// What makes two runs the same one: "model", "geometry", "batch", ... and what each is.

#pragma once

#include <map>
#include <string>

namespace gluon::lab {

using RunIdentity = std::map<std::string, std::string>;

/// Throws InputError, naming the part and the first line that differs, unless `there`, what a checkpoint says, agrees
/// with all of `here`.
void check_same_run(const RunIdentity& here, const RunIdentity& there);

}  // namespace gluon::lab
