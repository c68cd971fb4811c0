// AtomicFile: a file that gets its name only when all of its content is on the disk.
//
// Until commit(), and for good when something throws before, the name keeps the content it had.

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace gluon {

/// Temporary files are named after their target, this mark and a number; a killed writer leaves them behind.
inline constexpr std::string_view kTemporaryMark = ".tmp-";

class AtomicFile {
 public:
  /// Opens a temporary file beside `path`. All functions throw InputError with `origin` and the system's reason.
  AtomicFile(std::filesystem::path path, std::string origin);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void append(const void* bytes, std::size_t count);
  void write_at(off_t offset, const void* bytes, std::size_t count);
  void commit();

 private:
  void sync_folder() const;

  std::filesystem::path path_;
  std::string origin_;
  std::string temporary_;
  int fd_ = -1;
  off_t size_ = 0;
  bool committed_ = false;
};

/// Writes `text` to `path`, whole or not at all. Throws InputError with the path and the system's reason.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// Throws InputError, "ORIGIN: cannot read FILE: it is not a regular file", unless `path` is one or a link to one: a pipe
/// would block its reader for ever.
void check_regular(const std::filesystem::path& path, std::string_view origin);

/// The most bytes that read_text() takes: texts are configs and facts of a few kilobytes.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 24;

/// The bytes of a regular file. Throws InputError that begins with `origin` when it cannot be read or has more bytes than
/// kMostTextBytes.
std::string read_text(const std::filesystem::path& path, std::string_view origin);

}  // namespace gluon
