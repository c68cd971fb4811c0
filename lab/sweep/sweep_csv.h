// sweep.csv, as lab/sweep/sweep.h writes it, read back.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/sweep/sweep.h"

namespace gluon::lab {

struct SweepTable {
  std::vector<std::string> groups;  // one per axis
  std::vector<SweepCell> cells;
};

/// Throws InputError on a file that is none, with the line.
SweepTable read_sweep_csv(const std::filesystem::path& path);

}  // namespace gluon::lab
