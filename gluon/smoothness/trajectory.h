// Reads samples from a run directory, a smoothness.csv or a log of the paper's authors.

#pragma once

#include <filesystem>

#include "gluon/smoothness/sample.h"

namespace gluon {

/// The samples at `path`. A folder is a run and has a smoothness.csv. A file is a CSV when its name ends in .csv or its
/// first line names one of the columns of trajectory_csv.h, else a log (paper_log.h). Throws InputError when there are
/// no samples or they cannot be read.
Trajectory read_trajectory(const std::filesystem::path& path);

}  // namespace gluon
