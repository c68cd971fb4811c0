// Large test data outside the repository.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>

/// Declares `variable`, the path of a file or folder of the large data, or skips the test when it does not exist.
#define GLUON_SHARED_DATA_OR_SKIP(variable, name)                                           \
  const std::filesystem::path variable = std::filesystem::path(GLUON_SHARED_DATA) / (name); \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << "shared data '" << (name) << "' is absent"
