// FolderLock: one process at a time reads a folder's table of results, adds to it and writes it.

#pragma once

#include <filesystem>

namespace gluon::lab {

class FolderLock {
 public:
  /// Waits while others hold it. File systems without locks, and a folder that does not exist, protect nothing.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

}  // namespace gluon::lab
