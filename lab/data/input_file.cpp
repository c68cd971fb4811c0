#include "lab/data/input_file.h"

#include <fcntl.h>
#include <glob.h>
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

struct stat status_of(int descriptor, const std::string& name) {
  struct stat status {};
  GLUON_CHECK(fstat(descriptor, &status) == 0, "cannot read file '", name, "': ", std::strerror(errno));
  return status;
}

}  // namespace

uint64_t memory_limit() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) / 2;
}

std::string read_file(const fs::path& path, uint64_t most) {
  const InputFile file(path);
  const auto size = static_cast<uint64_t>(file.size());
  GLUON_CHECK(size <= most, "file '", path.string(), "' has ", size, " bytes, at most ", most,
              " are read into memory, half of what this machine has; split it, or make token shards of its parts");
  std::string bytes(size, '\0');
  file.read(0, bytes.data(), bytes.size());
  return path.extension() == ".xz" ? unpacked_xz(bytes, path, most) : bytes;
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

InputFile::InputFile(const fs::path& path) : name_(path.string()) {
  // Not to wait for the other end of a pipe.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  GLUON_CHECK(descriptor >= 0, "cannot open file '", name_, "': ", std::strerror(errno));
  descriptor_ = {new int(descriptor), [](const int* open) {
                   close(*open);
                   delete open;
                 }};
  const struct stat status = status_of(descriptor, name_);
  GLUON_CHECK(S_ISREG(status.st_mode), "cannot read '", name_, "': it is ",
              S_ISDIR(status.st_mode) ? "a folder" : "not a regular file", ", expected a file");
  size_ = status.st_size;
}

void InputFile::read(int64_t offset, void* bytes, std::size_t count) const {
  char* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t done = pread(*descriptor_, next, count, offset);
    if (done < 0 && errno == EINTR) continue;
    GLUON_CHECK(done >= 0, "cannot read file '", name_, "': ", std::strerror(errno));
    GLUON_CHECK(done > 0, "file '", name_, "' was cut from ", size_, " to ", status_of(*descriptor_, name_).st_size,
                " bytes while it was read");
    next += done;
    offset += done;
    count -= static_cast<std::size_t>(done);
  }
}

}  // namespace gluon::lab
