#include "lab/sweep/sweep_csv.h"

#include <algorithm>
#include <array>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"

namespace gluon::lab {
namespace {

constexpr std::array<std::string_view, 3> kResults = {"val", "loss", "seconds"};

}  // namespace

void write_sweep_csv(const std::filesystem::path& path, const SweepTable& table) {
  std::vector<std::string> header = table.groups;
  header.insert(header.end(), kResults.begin(), kResults.end());
  std::string text = csv_row(header) + "\n";
  for (const SweepCell& cell : table.cells) {
    std::vector<std::string> row;
    for (const double radius : cell.radii) row.push_back(number_text(radius));
    for (const double result : {cell.val, cell.loss, cell.seconds}) row.push_back(number_text(result));
    text += csv_row(row) + "\n";
  }
  write_text_atomically(path, text);
}

SweepTable read_sweep_csv(const std::filesystem::path& path) {
  CsvReader csv("sweep", path);
  SweepTable table{csv.columns(), {}};
  const auto groups = static_cast<std::ptrdiff_t>(table.groups.size()) - std::ssize(kResults);
  GLUON_CHECK(groups > 0 && std::equal(kResults.begin(), kResults.end(), table.groups.begin() + groups),
              "sweep: ", path.string(), " is not a sweep: expected the columns GROUP,...,val,loss,seconds, got '",
              csv_row(table.groups), "'");
  table.groups.resize(static_cast<std::size_t>(groups));
  while (csv.next()) {
    SweepCell cell;
    std::size_t at = 0;
    while (at < table.groups.size()) cell.radii.push_back(csv.number(at++));
    for (double* result : {&cell.val, &cell.loss, &cell.seconds}) *result = csv.number(at++);
    table.cells.push_back(std::move(cell));
  }
  GLUON_CHECK(!table.cells.empty(), "sweep: ", path.string(), " has no finished cell yet");
  return table;
}

}  // namespace gluon::lab
