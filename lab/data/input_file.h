// Input files, given as a file, a folder or a pattern; plain or compressed.
//
//   expand("corpus/*.bin")           the files that match
//   read_file("corpus/wiki.txt.xz")  the bytes of a file, unpacked
//   MappedFile("corpus/000.bin")     the bytes of a file, mapped into memory
//
// Every problem with a file is an InputError that names it.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::lab {

/// The whole file as bytes; a name that ends in .xz is unpacked (one or several streams, as xz itself does).
/// Throws InputError when the file cannot be read, is truncated or corrupt.
std::string read_file(const std::filesystem::path& path);

/// The files that `pattern` names, sorted: a file; the files of a folder, without hidden ones and subfolders; or the
/// matches of a shell pattern with * ? []. Throws InputError when there are none.
std::vector<std::filesystem::path> expand(const std::string& pattern);

/// The bytes of a file, mapped read-only into memory. Movable, not copyable.
class MappedFile {
 public:
  /// Throws InputError when the file cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Valid during the life of this object or the one it was moved to. Page-aligned.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gluon::lab
