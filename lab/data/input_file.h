// Input files, given as a file, a folder or a pattern; plain or compressed.
//
//   expand("corpus/*.bin")           the files that match
//   read_file("corpus/wiki.txt.xz")  the bytes of a file, unpacked
//   MappedFile("corpus/000.bin")     the bytes of a file, mapped into memory
//
// Every problem with a file is an InputError that names it.

#pragma once

#include <filesystem>
#include <memory>
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

/// The contents of one or several xz streams. Throws InputError, which names `path`, on anything else, and in a program
/// without liblzma (no_xz.cpp).
std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path);

/// The bytes of a file, mapped read-only into memory. Copies share the pages.
class MappedFile {
 public:
  /// Throws InputError when the file cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);

  /// Valid during the life of this object or a copy. Page-aligned.
  std::string_view bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> pages_;
  std::string_view bytes_;
};

/// The text for training without a file: the project's own sources and documents, embedded at build time in the order
/// of their paths, each after a line with its path. It changes with every commit: comparisons need a fixed text.
std::string_view default_text();

}  // namespace gluon::lab
