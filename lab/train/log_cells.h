// Cells of the program's own CSV files of numbers (log.csv, sweep.csv): no quotes, and "nan" or "inf" where a run has
// diverged.

#pragma once

#include <string>
#include <vector>

namespace gluon::lab {

/// The line cut at its commas; one cell more than there are commas.
std::vector<std::string> cells_of(const std::string& line);

/// A number, or what a run that diverged has written instead. Throws InputError that names `origin`.
double parse_logged(const std::string& cell, const std::string& origin);

}  // namespace gluon::lab
