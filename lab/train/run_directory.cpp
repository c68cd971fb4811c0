#include "lab/train/run_directory.h"

#include <sstream>

#include "gluon/check.h"
#include "gluon/checkpoint/safetensors.h"
#include "gluon/spec.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, "run: cannot read ", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string header(const LogRow& row) {
  std::string line = "step,tokens,loss,val,seconds";
  for (const auto& [role, radius] : row.radii) line += ",radius_" + role;
  return line + "\n";
}

}  // namespace

RunDirectory RunDirectory::create(const fs::path& path, const std::string& config) {
  GLUON_CHECK(!fs::exists(path / "config.toml"), "run: ", path.string(),
              " holds a run already; resume it with --resume or choose another --out");
  std::error_code error;
  fs::create_directories(path, error);
  GLUON_CHECK(!error, "run: cannot make ", path.string(), ": ", error.message());
  RunDirectory directory(path);
  directory.set_config(config);
  return directory;
}

RunDirectory RunDirectory::open(const fs::path& path) {
  GLUON_CHECK(fs::exists(path / "config.toml"), "run: ", path.string(), " holds no run (no config.toml)");
  return RunDirectory(path);
}

void RunDirectory::set_config(const std::string& config) {
  write_text_atomically(path_ / "config.toml", config);
}

std::string RunDirectory::config() const { return read_text(path_ / "config.toml"); }

void RunDirectory::append(const LogRow& row) {
  const fs::path log = path_ / "log.csv";
  const bool fresh = !fs::exists(log);
  std::ofstream file(log, std::ios::app);
  if (fresh) file << header(row);
  file << row.step << ',' << row.tokens << ',' << number_text(row.loss) << ','
       << (row.val ? number_text(*row.val) : "") << ',' << number_text(row.seconds);
  for (const auto& [role, radius] : row.radii) file << ',' << number_text(radius);
  file << '\n';
  file.close();
  GLUON_CHECK(file, "run: cannot write ", log.string());
}

double RunDirectory::rewind(int64_t step) {
  const fs::path log = path_ / "log.csv";
  if (!fs::exists(log)) return 0;
  std::istringstream lines(read_text(log));
  std::string kept;
  std::string line;
  double seconds = 0;
  std::getline(lines, line);
  kept = line + "\n";
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    // A killed run may leave half a line at the end.
    if (cells.size() < 5 || lines.eof() || parse_integer(cells[0], log.string()) > step) break;
    seconds = parse_number(cells[4], log.string());
    kept += line + "\n";
  }
  write_text_atomically(log, kept);
  return seconds;
}

fs::path fresh_run_path(const std::string& stem) {
  for (int number = 1;; ++number) {
    fs::path path = fs::path("runs") / join(stem, "-", number);
    if (!fs::exists(path)) return path;
  }
}

}  // namespace gluon::lab
