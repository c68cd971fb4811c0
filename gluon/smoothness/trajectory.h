// Where samples lie, whatever they were written by: a run directory, smoothness.csv or a log of the authors.

#pragma once

#include <filesystem>

#include "gluon/smoothness/sample.h"

namespace gluon {

/// The samples at `path`: a folder is a run and stands for its smoothness.csv; a file is a CSV when its first line
/// holds one of the columns of trajectory_csv.h or its name says so, else a log (paper_log.h). Throws InputError when
/// there are none, or they cannot be read.
Trajectory read_trajectory(const std::filesystem::path& path);

}  // namespace gluon
