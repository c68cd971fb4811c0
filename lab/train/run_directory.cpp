#include "lab/train/run_directory.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/json.h"
#include "gluon/core/spec.h"
#include "gluon/version.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// "model name : ..." of Linux; empty elsewhere.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto at = line.find(": ");
    return at == std::string::npos ? "" : line.substr(at + 2);
  }
  return "";
}

// Of a run, beside config.toml.
constexpr std::array<std::string_view, 7> kFiles = {"log.csv",    "smoothness.csv", "checkpoint", "status.json",
                                                    "facts.json", "report.html",    kEventFile};

constexpr std::string_view kRadiusPrefix = "radius_";
constexpr std::string_view kOptimizer = "optimizer";

std::string header(const LogRow& row) {
  std::vector<std::string> cells = {"step", "tokens", "loss", "val", "seconds", std::string(kOptimizer)};
  for (const auto& [role, radius] : row.radii) cells.push_back(join(kRadiusPrefix, role));
  return csv_row(cells) + "\n";
}

std::string line_of(const LogRow& row) {
  const auto or_empty = [](std::optional<double> value) { return value ? number_text(*value) : std::string(); };
  std::vector<std::string> cells = {std::to_string(row.step), std::to_string(row.tokens), number_text(row.loss),
                                    or_empty(row.val),        number_text(row.seconds),   or_empty(row.optimizer)};
  for (const auto& [role, radius] : row.radii) cells.push_back(number_text(radius));
  return csv_row(cells) + "\n";
}

void write_facts(const fs::path& run, const auto& json) {
  write_text_atomically(run / "facts.json", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// The object in facts.json; an empty one where it is missing or damaged.
nlohmann::json read_facts(const fs::path& run) {
  try {
    if (fs::exists(run / "facts.json")) {
      nlohmann::json json = parse_json(read_text(run / "facts.json", "run"), "facts.json");
      if (json.is_object()) return json;
    }
  } catch (const InputError&) {
  }
  return nlohmann::json::object();
}

}  // namespace

bool RunDirectory::is_name(std::string_view file) {
  return file == "config.toml" || std::ranges::find(kFiles, file) != kFiles.end();
}

void RunDirectory::check_free(const fs::path& path) {
  GLUON_CHECK(!fs::exists(path / "config.toml"), "run: ", path.string(),
              " already holds a run (config.toml); resume it with --resume or choose another --out");
  GLUON_CHECK(!fs::exists(path / "sweep.csv"), "run: ", path.string(),
              " holds a sweep (sweep.csv); choose another --out");
  for (const std::string_view file : kFiles) {
    GLUON_CHECK(!fs::exists(path / file), "run: ", path.string(), " holds a ", file,
                " that a run would overwrite; move it away or choose another --out");
  }
}

RunDirectory RunDirectory::create(const fs::path& path, const std::string& config) {
  std::error_code error;
  fs::create_directories(path, error);
  GLUON_CHECK(!error, "run: cannot create ", path.string(), ": ", error.message());
  RunDirectory directory(path);
  directory.lock();
  check_free(path);
  try {
    directory.set_config(config);
  } catch (const InputError&) {  // a full disk leaves no folder
    fs::remove(path, error);
    throw;
  }
  return directory;
}

RunDirectory RunDirectory::open(const fs::path& path) {
  GLUON_CHECK(fs::exists(path / "config.toml"), "run: ", path.string(), " holds no run (no config.toml)");
  return RunDirectory(path);
}

RunDirectory RunDirectory::reopen(const fs::path& path) {
  RunDirectory directory = open(path);
  directory.lock();
  return directory;
}

// File systems without locks fail with another error; there the run is not protected.
void RunDirectory::lock() {
  const int folder = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  GLUON_CHECK(folder >= 0, "run: cannot open ", path_.string(), ": ", std::strerror(errno));
  lock_ = std::shared_ptr<const int>(new int(folder), [](const int* number) {
    ::close(*number);
    delete number;
  });
  while (::flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    // is_held() has a shared lock for a moment, which a shared one can join; a writer's excludes both.
    GLUON_CHECK(::flock(folder, LOCK_SH | LOCK_NB) == 0, "run: another process is writing to ", path_.string());
    ::flock(folder, LOCK_UN);
  }
}

bool RunDirectory::is_held(const fs::path& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  const bool held = ::flock(folder, LOCK_SH | LOCK_NB) != 0;
  ::close(folder);  // unlocks
  return held;
}

void RunDirectory::set_config(const std::string& config) { write_text_atomically(path_ / "config.toml", config); }

void RunDirectory::set_facts(const RunFacts& facts) {
  const nlohmann::ordered_json json = {
      {"version", kVersion},     {"machine", processor()},       {"threads", at::get_num_threads()},
      {"device", facts.device},  {"precision", facts.precision}, {"data", facts.data},
      {"routing", facts.routing}};
  write_facts(path_, json);
}

void RunDirectory::set_incidents(int64_t skipped, int64_t rollbacks) {
  nlohmann::json json = read_facts(path_);
  json["skipped"] = skipped;
  json["rollbacks"] = rollbacks;
  write_facts(path_, json);
}

int64_t RunDirectory::rollbacks() const {
  const nlohmann::json json = read_facts(path_);
  const auto found = json.find("rollbacks");
  return found != json.end() && found->is_number_unsigned() ? found->get<int64_t>() : 0;
}

void RunDirectory::discard() {
  std::error_code ignored;  // a folder with other files remains
  for (const fs::path& file :
       {path_ / "config.toml", path_ / "status.json", path_ / "facts.json", smoothness(), checkpoints(), path_}) {
    fs::remove(file, ignored);
  }
}

std::string RunDirectory::config() const { return read_text(path_ / "config.toml", "run"); }

void RunDirectory::append(const LogRow& row) {
  const fs::path log = path_ / "log.csv";
  const bool fresh = !fs::exists(log);
  std::ofstream file(log, std::ios::app);
  if (fresh) file << header(row);
  file << line_of(row);
  file.close();
  GLUON_CHECK(file, "run: cannot write ", log.string());
}

std::vector<LogRow> RunDirectory::log() const {
  const fs::path path = path_ / "log.csv";
  if (!fs::exists(path)) return {};
  CsvReader csv("run", path);
  if (csv.bytes() == 0) return {};  // a killed run may leave half a header
  const std::vector<std::size_t> at = csv.find({"step", "tokens", "loss", "val", "seconds"});
  const std::vector<std::string>& names = csv.columns();
  std::vector<LogRow> rows;
  while (csv.next()) {
    LogRow row{.step = csv.integer(at[0]),
               .tokens = csv.integer(at[1]),
               .loss = csv.number(at[2]),
               .val = csv.number_or_empty(at[3]),
               .seconds = csv.number(at[4])};
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == kOptimizer) row.optimizer = csv.number_or_empty(i);
      if (names[i].starts_with(kRadiusPrefix))
        row.radii.emplace_back(names[i].substr(kRadiusPrefix.size()), csv.number(i));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

double RunDirectory::rewind(int64_t step) {
  std::vector<LogRow> rows = log();
  if (!fs::exists(path_ / "log.csv")) return 0;
  std::erase_if(rows, [&](const LogRow& row) { return row.step > step; });
  std::string kept;
  for (const LogRow& row : rows) kept += line_of(row);
  if (rows.empty()) {
    fs::remove(path_ / "log.csv");
    return 0;
  }
  write_text_atomically(path_ / "log.csv", header(rows.front()) + kept);
  return rows.back().seconds;
}

fs::path make_run_path(const std::string& stem) {
  fs::create_directories("runs");
  std::string name = stem;
  std::replace(name.begin(), name.end(), '(', '-');
  std::erase(name, ')');
  for (int number = 1;; ++number) {
    fs::path path = fs::path("runs") / join(name, "-", number);
    if (fs::create_directory(path)) return path;
  }
}

}  // namespace gluon::lab
