// Large test data outside the repository.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace gluon::lab {

/// The path of a file or folder of the large data; empty when it does not exist.
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
