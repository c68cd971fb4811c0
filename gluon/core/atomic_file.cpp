#include "gluon/core/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "gluon/core/check.h"

namespace gluon {

AtomicFile::AtomicFile(std::filesystem::path path, std::string origin)
    : path_(std::move(path)), origin_(std::move(origin)) {
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = join(path_.string(), kTemporaryMark, getpid(), "-", attempt);
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    GLUON_CHECK(fd_ >= 0 || errno == EEXIST || errno == EINTR, origin_, std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::append(const void* bytes, std::size_t count) {
  write_at(size_, bytes, count);
  size_ += static_cast<off_t>(count);
}

void AtomicFile::write_at(off_t offset, const void* bytes, std::size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = pwrite(fd_, next, count, offset);
    if (written < 0 && errno == EINTR) continue;
    GLUON_CHECK(written > 0, origin_, std::strerror(errno));
    next += written;
    offset += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  GLUON_CHECK(fsync(fd_) == 0, origin_, std::strerror(errno));
  GLUON_CHECK(close(std::exchange(fd_, -1)) == 0, origin_, std::strerror(errno));
  GLUON_CHECK(std::rename(temporary_.c_str(), path_.c_str()) == 0, origin_, std::strerror(errno));
  committed_ = true;
  sync_folder();
}

// Without this a power failure may undo the rename.
void AtomicFile::sync_folder() const {
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot sync a folder and return EINVAL.
  const int code = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL) ? 0 : errno;
  if (fd >= 0) close(fd);
  GLUON_CHECK(code == 0, origin_, std::strerror(code));
}

void write_text_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile out(path, join("write_text_atomically: cannot write '", path.string(), "': "));
  out.append(text.data(), text.size());
  out.commit();
}

void check_regular(const std::filesystem::path& path, std::string_view origin) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  GLUON_CHECK(regular, origin, ": cannot read ", path.string(), ": ",
              error ? error.message() : "it is not a regular file");
}

std::string read_text(const std::filesystem::path& path, std::string_view origin) {
  check_regular(path, origin);
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, origin, ": cannot read ", path.string());
  std::string text;
  char part[4096];
  while (file.read(part, sizeof part), file.gcount() > 0) {
    text.append(part, static_cast<std::size_t>(file.gcount()));
    GLUON_CHECK(text.size() <= kMostTextBytes, origin, ": ", path.string(), " has more than ", kMostTextBytes,
                " bytes");
  }
  GLUON_CHECK(!file.bad(), origin, ": cannot read ", path.string());
  return text;
}

}  // namespace gluon
