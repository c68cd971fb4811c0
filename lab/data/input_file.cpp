#include "lab/data/input_file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

std::string read_file(const fs::path& path) {
  const MappedFile file(path);
  return path.extension() == ".xz" ? unpacked_xz(file.bytes(), path) : std::string(file.bytes());
}

std::vector<fs::path> expand(const std::string& pattern) {
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(pattern, error)) {
    for (fs::directory_iterator entry(pattern, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->is_regular_file() && entry->path().filename().string().front() != '.') {
        files.push_back(entry->path());
      }
    }
    GLUON_CHECK(!error, "cannot list folder '", pattern, "': ", error.message());
    GLUON_CHECK(!files.empty(), "folder '", pattern, "' contains no files");
  } else if (fs::exists(pattern, error)) {
    files.emplace_back(pattern);
  } else {
    glob_t found{};
    const std::unique_ptr<glob_t, void (*)(glob_t*)> end(&found, globfree);
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        if (!fs::is_directory(found.gl_pathv[i], error)) files.emplace_back(found.gl_pathv[i]);
      }
    }
    GLUON_CHECK(!files.empty(), "no file matches '", pattern, "'");
  }
  std::sort(files.begin(), files.end());
  return files;
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  GLUON_CHECK(file.value >= 0, "cannot open file '", path.string(), "': ", std::strerror(errno));
  struct stat status {};
  GLUON_CHECK(fstat(file.value, &status) == 0, "cannot read file '", path.string(), "': ", std::strerror(errno));
  GLUON_CHECK(S_ISREG(status.st_mode), "cannot read '", path.string(), "': it is ",
              S_ISDIR(status.st_mode) ? "a folder" : "not a regular file", ", expected a file");
  if (status.st_size == 0) return;  // mmap fails on an empty range
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  GLUON_CHECK(address != MAP_FAILED, "cannot map file '", path.string(), "': ", std::strerror(errno));
  pages_ = {address, [size](void* pages) { munmap(pages, size); }};
  bytes_ = {static_cast<const char*>(address), size};
}

}  // namespace gluon::lab
