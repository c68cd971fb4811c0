#include "gluon/core/json.h"

#include <string>

#include "tests/expect_error.h"

namespace gluon {
namespace {

std::string nested(std::size_t depth, char open, char close) {
  return std::string(depth, open) + std::string(depth, close);
}

TEST(Json, ReadsValues) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": "x"}], "c": null})", "test")["a"][1]["b"], "x");
  EXPECT_EQ(parse_json("\"\\u00e9\"", "test"), "\u00e9");
  // The same name in different objects is fine.
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}, {"b": {"a": 3}}])", "test").size(), 3U);
}

TEST(Json, RefusesTextThatIsNone) {
  for (const char* text : {"", "{", "{]", "nul", "\"\xff\"", "1 2", "[1,]", "{\"a\":1}x"}) {
    EXPECT_INPUT_ERROR(parse_json(text, "facts.json"), "facts.json is not JSON");
  }
}

TEST(Json, RefusesDepthBeforeItCostsTheStack) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, '[', ']'), "test").is_array());
  EXPECT_INPUT_ERROR(parse_json(nested(kMaxJsonDepth + 1, '[', ']'), "test"), "test is nested deeper than 32 levels");
  EXPECT_INPUT_ERROR(parse_json(std::string(10'000'000, '['), "test"), "test is nested deeper than 32 levels");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"\":";
  EXPECT_INPUT_ERROR(parse_json(objects, "test"), "test is nested deeper than 32 levels");
  EXPECT_INPUT_ERROR(parse_json("[[[1]]]", "test", 2), "test is nested deeper than 2 levels");
}

TEST(Json, RefusesNamesListedTwice) {
  EXPECT_INPUT_ERROR(parse_json(R"({"a": 1, "b": {"a": 1}, "a": 2})", "test"), "test lists 'a' twice");
  EXPECT_INPUT_ERROR(parse_json(R"([{"\u001b[2J": 1, "\u001b[2J": 2}])", "test"), "test lists '\\x1b[2J' twice");
}

}  // namespace
}  // namespace gluon
