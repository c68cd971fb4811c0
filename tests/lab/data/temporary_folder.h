// What the tests of lab/data share: a folder that goes away, files in it, and where the larger data may lie.

#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace gluon::lab {

/// A new empty folder, removed with everything in it at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gluon_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// A file or folder of the large data kept outside of the repository; empty when it is not there.
inline std::filesystem::path shared_data(const std::string& name) {
#ifdef GLUON_SHARED_DATA
  const std::filesystem::path path = std::filesystem::path(GLUON_SHARED_DATA) / name;
  if (std::filesystem::exists(path)) return path;
#endif
  return {};
}

}  // namespace gluon::lab

/// Declares `variable`, the path of shared data, or skips the test.
#define GLUON_SHARED_DATA_OR_SKIP(variable, name)           \
  const std::filesystem::path variable = shared_data(name); \
  if (variable.empty()) GTEST_SKIP() << "shared data '" << (name) << "' is absent"
