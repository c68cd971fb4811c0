// A run directory with two steps, for the tests of gluon watch.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "gluon/core/check.h"
#include "lab/report/page.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {

class WatchedRun {
 public:
  WatchedRun() {
    folder_.write("config.toml", "steps=2\n");
    folder_.write("log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n");
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  void append(const std::string& line) const { std::ofstream(path() / "log.csv", std::ios::app) << line; }

 private:
  TemporaryFolder folder_;
};

inline bool built_with_page() {
  try {
    return !page_template().empty();
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace gluon::lab

#define GLUON_PAGE_OR_SKIP() \
  if (!built_with_page()) GTEST_SKIP() << "built without the page"
