// sweep.csv: a column per group of layers, then val, loss and seconds; a row per finished cell.

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

/// Replaces the file.
void write_sweep_csv(const std::filesystem::path& path, const SweepTable& table);

/// Throws InputError on a file that is not a sweep or has no row.
SweepTable read_sweep_csv(const std::filesystem::path& path);

}  // namespace gluon::lab
