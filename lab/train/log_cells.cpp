#include "lab/train/log_cells.h"

#include <cmath>
#include <sstream>

#include "gluon/spec.h"

namespace gluon::lab {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream row(line);
  for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
  return cells;
}

double parse_logged(const std::string& cell, const std::string& origin) {
  if (cell == "nan" || cell == "-nan") return std::nan("");
  if (cell == "inf") return HUGE_VAL;
  return parse_number(cell, origin);
}

}  // namespace gluon::lab
