#include "gluon/smoothness/paper_log.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

#include "gluon/core/check.h"

namespace gluon {
namespace {

// Removes `text` from the front of `rest`.
bool skip(std::string_view& rest, std::string_view text) {
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

template <typename Number> bool take(std::string_view& rest, Number& value) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return true;
}

// step:K/N (i) L_estimated:   or   step:K (i) L_estimated:
bool take_start(std::string_view& rest, int64_t& step, int64_t& layer) {
  int64_t total = 0;
  if (!skip(rest, "step:") || !take(rest, step)) return false;
  if (skip(rest, "/") && !take(rest, total)) return false;
  return skip(rest, " (") && take(rest, layer) && skip(rest, ") L_estimated:");
}

// x norm_grad: y
bool take_values(std::string_view& rest, Sample& sample) {
  return take(rest, sample.smoothness) && skip(rest, " norm_grad:") && take(rest, sample.gradient) &&
         rest.find_first_not_of(" \r") == std::string_view::npos;
}

}  // namespace

Trajectory read_paper_log(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  GLUON_CHECK(file, "smoothness: cannot read ", path.string());
  Trajectory trajectory;
  std::map<int64_t, std::size_t> index;
  std::string line;
  // A last line without a break may have been cut inside a number.
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    std::string_view rest = line;
    Sample sample;
    int64_t layer = 0;
    if (!take_start(rest, sample.step, layer)) continue;
    GLUON_CHECK(take_values(rest, sample), "smoothness: ", path.string(), " line ", number,
                ": expected L_estimated: NUMBER norm_grad: NUMBER, got '", line, "'");
    const auto [entry, fresh] = index.try_emplace(layer, trajectory.layers.size());
    if (fresh) trajectory.layers.push_back({.layer = std::to_string(layer)});
    trajectory.layers[entry->second].samples.push_back(sample);
  }
  GLUON_CHECK(!file.bad(), "smoothness: cannot read ", path.string());
  GLUON_CHECK(!trajectory.layers.empty(), "smoothness: ", path.string(),
              " holds no samples, lines such as 'step:50/5001 (0) L_estimated: 2.04 norm_grad: 0.0258'");
  return trajectory;
}

}  // namespace gluon
