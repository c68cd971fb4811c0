#include "lab/train/run_identity.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

// With single spaces: tables of other widths may say the same.
std::string collapsed(std::string text) {
  const auto is_gap = [](char before, char after) { return before == ' ' && after == ' '; };
  text.erase(std::unique(text.begin(), text.end(), is_gap), text.end());
  return text;
}

// The first line in which two texts differ; empty where one has ended.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a);
  std::istringstream right(b);
  std::string left_line;
  std::string right_line;
  do {
    if (!std::getline(left, left_line)) left_line.clear();
    if (!std::getline(right, right_line)) right_line.clear();
  } while (left_line == right_line && (left || right));
  return {left_line, right_line};
}

}  // namespace

void check_same_run(const RunIdentity& here, const RunIdentity& there) {
  for (const auto& [part, text] : here) {
    const auto found = there.find(part);
    GLUON_CHECK(found != there.end(), "resume: the checkpoint does not say its ", part);
    const auto [there_line, here_line] = first_difference(collapsed(found->second), collapsed(text));
    GLUON_CHECK(there_line == here_line, "resume: the checkpoint belongs to another run: its ", part, " is '",
                there_line, "', here it is '", here_line, "'");
  }
}

}  // namespace gluon::lab
