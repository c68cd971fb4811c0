#include "lab/sweep/sweep_csv.h"

#include <fstream>
#include <string>

#include "gluon/core/check.h"
#include "lab/train/log_cells.h"

namespace gluon::lab {
namespace {

constexpr std::size_t kResults = 3;  // val, loss, seconds

}  // namespace

SweepTable read_sweep_csv(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, "sweep: cannot read ", path.string());
  std::string line;
  std::getline(file, line);
  SweepTable table{cells_of(line), {}};
  GLUON_CHECK(table.groups.size() > kResults && line.ends_with(",val,loss,seconds"), "sweep: ", path.string(),
              " is no sweep: expected the columns GROUP,...,val,loss,seconds, got '", line, "'");
  table.groups.resize(table.groups.size() - kResults);
  for (std::size_t at = 2; std::getline(file, line); ++at) {
    const std::vector<std::string> cells = cells_of(line);
    const std::string origin = join("sweep: ", path.string(), " line ", at);
    GLUON_CHECK(cells.size() == table.groups.size() + kResults, origin, " has ", cells.size(),
                " cells, the header ", table.groups.size() + kResults);
    SweepCell cell;
    for (std::size_t i = 0; i < table.groups.size(); ++i)
      cell.radii.push_back(parse_logged(cells[i], origin));
    const std::size_t first = table.groups.size();
    cell.val = parse_logged(cells[first], origin);
    cell.loss = parse_logged(cells[first + 1], origin);
    cell.seconds = parse_logged(cells[first + 2], origin);
    table.cells.push_back(std::move(cell));
  }
  GLUON_CHECK(!table.cells.empty(), "sweep: ", path.string(), " has no finished cell yet");
  return table;
}

}  // namespace gluon::lab
