#include "lab/train/run_facts.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gluon/version.h"

namespace gluon::lab {
namespace {

TEST(RunFacts, TheJsonHasAllFacts) {
  const auto json = nlohmann::json::parse(
      facts_json({.device = "cpu", .precision = "float32", .data = "a \"b\"\xff", .routing = "group\nhidden\n"}));
  EXPECT_EQ(json["version"], kVersion);
  EXPECT_EQ(json["threads"], at::get_num_threads());
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["precision"], "float32");
  EXPECT_EQ(json["data"], "a \"b\"\uFFFD");
  EXPECT_EQ(json["routing"], "group\nhidden\n");
  EXPECT_TRUE(json["machine"].is_string());
}

}  // namespace
}  // namespace gluon::lab
