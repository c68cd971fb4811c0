// A run directory with two steps and the answers of gluon watch to requests for it.

#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "gluon/core/check.h"
#include "lab/report/page.h"
#include "lab/report/watch_answers.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {

inline bool built_with_page() {
  try {
    return !page_template().empty();
  } catch (const InputError&) {
    return false;
  }
}

#define GLUON_PAGE_OR_SKIP() \
  if (!built_with_page()) GTEST_SKIP() << "built without the page"

class WatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GLUON_PAGE_OR_SKIP();
    folder_.write("config.toml", "steps=2\n");
    folder_.write("log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n");
    answers_.emplace(std::vector{run()}, FitOptions{}, "");
  }

  const std::filesystem::path& run() const { return folder_.path(); }
  void append(const std::string& line) const { std::ofstream(run() / "log.csv", std::ios::app) << line; }

  TemporaryFolder folder_;
  std::optional<WatchAnswers> answers_;
};

}  // namespace gluon::lab
