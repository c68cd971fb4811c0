#include "lab/train/run_identity.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "lab/models/nanogpt.h"
#include "lab/models/zoo.h"
#include "lab/train/config_fields.h"

namespace gluon::lab {
namespace {

// With single spaces: the columns of a routing report may have other widths.
std::string collapsed(std::string text) {
  const auto is_gap = [](char before, char after) { return before == ' ' && after == ' '; };
  text.erase(std::unique(text.begin(), text.end(), is_gap), text.end());
  return text;
}

// The first line in which two texts differ; empty where one has ended.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string left_line, right_line;
  do {
    if (!std::getline(left, left_line)) left_line.clear();
    if (!std::getline(right, right_line)) right_line.clear();
  } while (left_line == right_line && (left || right));
  return {left_line, right_line};
}

}  // namespace

RunIdentity config_identity(const TrainConfig& config) {
  RunIdentity identity{{"label-smoothing", number_text(config.resolved_label_smoothing())},
                       {"qk-clip", number_text(config.resolved_qk_clip())}};
  if (is_language_model(config.model)) {
    const NanoGptOptions standard = nanogpt_options(config.model);
    identity["heads"] = std::to_string(config.heads > 0 ? config.heads : standard.heads);
    identity["seq"] = std::to_string(config.seq > 0 ? config.seq : standard.context);
  }
  for (const ConfigField& field : config_fields()) {
    if (std::string_view(field.identity) == field.name) identity.emplace(field.name, value_text(config, field));
  }
  return identity;
}

void check_same_run(const RunIdentity& expected, const RunIdentity& saved) {
  // Before the geometry, whose difference says less.
  const auto own = expected.find(kHorizon), before = saved.find(kHorizon);
  GLUON_CHECK(own == expected.end() || before == saved.end() || own->second == before->second,
              "resume: --steps must stay ", before->second, ", from which the radii of the run follow, got ",
              own->second);
  for (const auto& [part, text] : expected) {
    const auto found = saved.find(part);
    GLUON_CHECK(found != saved.end(), "resume: the checkpoint does not name its ", part);
    const auto [saved_line, line] = first_difference(collapsed(found->second), collapsed(text));
    GLUON_CHECK(saved_line == line, "resume: the checkpoint belongs to another run: its ", part, " is '", saved_line,
                "', this run has '", line, "'");
  }
}

}  // namespace gluon::lab
