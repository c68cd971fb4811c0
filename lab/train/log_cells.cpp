#include "lab/train/log_cells.h"

#include <cmath>

#include "gluon/core/spec.h"

namespace gluon::lab {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::size_t begin = 0;
  for (std::size_t comma; (comma = line.find(',', begin)) != std::string::npos; begin = comma + 1)
    cells.push_back(line.substr(begin, comma - begin));
  cells.push_back(line.substr(begin));
  return cells;
}

double parse_logged(const std::string& cell, const std::string& origin) {
  if (cell == "nan" || cell == "-nan") return std::nan("");
  if (cell == "inf") return HUGE_VAL;
  return parse_number(cell, origin);
}

}  // namespace gluon::lab
