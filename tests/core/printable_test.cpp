#include "gluon/core/printable.h"

#include <gtest/gtest.h>

#include <utility>

namespace gluon {
namespace {

using namespace std::literals;

TEST(Printable, EscapesWhatATerminalObeysAndKeepsTheRest) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"h.0.attn.c_q.weight", "h.0.attn.c_q.weight"},
      {"", ""},
      {"größe 中 \U0001F600 \\", "größe 中 \U0001F600 \\"},
      {"\033[2Jgone"sv, "\\x1b[2Jgone"},
      {"a\nb\r\tc"sv, "a\\nb\\r\\tc"},
      {"nul\0end"sv, "nul\\x00end"},
      {"del\x7f", "del\\x7f"},
      {"\u009b2J", "\\xc2\\x9b2J"},                 // CSI as one character
      {"\u202etxt.exe", "\\xe2\\x80\\xaetxt.exe"},  // text from right to left
      {"a\u2028b", "a\\xe2\\x80\\xa8b"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc3", "\\xc3"},                    // cut inside a character
      {"\xc0\x9b", "\\xc0\\x9b"},           // too long a form of ESC
      {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},  // the same for CSI
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // half of a surrogate pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
      {"\xc3\x28", "\\xc3("},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(printable(text), shown);
}

TEST(Printable, ChangesNothingTheSecondTime) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string once = printable(all);
  EXPECT_EQ(printable(once), once);
  for (const char c : once) EXPECT_GE(c, ' ');
}

}  // namespace
}  // namespace gluon
