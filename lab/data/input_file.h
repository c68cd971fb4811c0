// Reading what people point at: a file, a folder or a pattern; plain or compressed.
//
//   expand("corpus/*.bin")         the files a name stands for
//   read_file("corpus/wiki.txt.xz")  all bytes of one, unpacked
//   MappedFile("corpus/000.bin")   the same bytes without reading them first
//
// Everything that can be wrong with a file is an InputError that names it.

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

/// The files `pattern` stands for, sorted: a file itself; the files of a folder, without hidden ones and without
/// its subfolders; or the files a shell pattern with * ? [] finds. Throws InputError when there are none.
std::vector<std::filesystem::path> expand(const std::string& pattern);

/// Whether the name says that the file is compressed.
bool is_xz(const std::filesystem::path& path);

/// The bytes of a file mapped read-only into memory. Moves, does not copy.
class MappedFile {
 public:
  /// Throws InputError when the file cannot be opened or is no regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Valid as long as this object or the one it was moved to lives. The start is aligned to a page.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gluon::lab
