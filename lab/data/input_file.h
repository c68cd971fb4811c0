// Input files, given as a file, a folder or a pattern; plain or compressed.
//
//   expand("corpus/*.bin")           the files that match
//   read_file("corpus/wiki.txt.xz")  the bytes of a file, unpacked
//   InputFile("corpus/000.bin")      parts of a file, read when they are needed
//
// Every problem with a file is an InputError that names it. Files are read, not mapped: a mapped file that somebody cuts
// ends the program with SIGBUS, while a read that comes back short is an error like any other. A file replaced by
// another of its name stays open as it was.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::lab {

/// The most bytes that a file may take in memory: half of what this machine has.
uint64_t memory_limit();

/// The whole file as bytes; a name that ends in .xz is unpacked (one or several streams, as xz itself does).
/// Throws InputError when the file cannot be read, is truncated or corrupt, or takes more than `most` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t most = memory_limit());

/// The files that `pattern` names, sorted: a file; the files of a folder, without hidden ones and subfolders; or the
/// matches of a shell pattern with * ? []. Throws InputError when there are none.
std::vector<std::filesystem::path> expand(const std::string& pattern);

/// The contents of one or several xz streams. Throws InputError, which names `path`, on anything else, on contents of
/// more than `most` bytes, and in a program without liblzma (no_xz.cpp).
std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path, uint64_t most = memory_limit());

/// A file that is open for reading. Copies share it.
class InputFile {
 public:
  /// Throws InputError when the file cannot be opened or is not a regular file.
  explicit InputFile(const std::filesystem::path& path);

  /// Bytes when it was opened.
  int64_t size() const { return size_; }

  /// Reads `count` bytes from `offset` on, from any thread. Throws InputError when the file has become shorter.
  void read(int64_t offset, void* bytes, std::size_t count) const;

 private:
  std::string name_;
  std::shared_ptr<const int> descriptor_;
  int64_t size_ = 0;
};

/// The text for training without a file: the project's own sources and documents, embedded at build time in the order
/// of their paths, each after a line with its path. It changes with every commit: comparisons need a fixed text.
std::string_view default_text();

}  // namespace gluon::lab
