#include "gluon/smoothness/trajectory.h"

#include <fstream>
#include <string>

#include "gluon/core/check.h"
#include "gluon/smoothness/paper_log.h"
#include "gluon/smoothness/trajectory_csv.h"

namespace gluon {

namespace fs = std::filesystem;

Trajectory read_trajectory(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path csv = path / "smoothness.csv";
    GLUON_CHECK(fs::exists(csv, error), "smoothness: ", path.string(),
                " holds no smoothness.csv; gluon train writes one with --smoothness-every N");
    return read_trajectory_csv(csv);
  }
  GLUON_CHECK(fs::exists(path, error), "smoothness: ", path.string(),
              " does not exist; expected a run directory, a smoothness.csv or a log of the paper's authors");
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, "smoothness: cannot read ", path.string());
  std::string line;
  std::getline(file, line);
  const bool csv = is_trajectory_csv_header(line) || path.extension() == ".csv";
  return csv ? read_trajectory_csv(path) : read_paper_log(path);
}

}  // namespace gluon
