#include "lab/report/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

namespace gluon::lab {
namespace {

constexpr std::array kRunColors = {"#1d5bc4", "#c8570f", "#3f9468", "#a3439a", "#3a2890",
                                   "#992f2a", "#ad9200", "#12a0c4", "#592c06", "#f55c98"};
constexpr std::array<std::string_view, 7> kGroups = {"hidden", "embedding", "head", "conv",
                                                     "vector", "scalar",    "adamw"};

// Not every program that reads SVG knows hsl().
std::string hex_of(double hue, double saturation, double lightness) {
  const double chroma = saturation * std::min(lightness, 1 - lightness);
  const auto channel = [&](double place) {
    const double at = std::fmod(place + hue / 30, 12);
    const double value = lightness - chroma * std::max(-1.0, std::min({at - 3, 9 - at, 1.0}));
    return static_cast<unsigned>(std::lround(255 * value));
  };
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", channel(0), channel(8), channel(4));
  return text;
}

}  // namespace

LineLook line_look(LineStyle style) {
  switch (style) {
    case LineStyle::kMarked: return {.width = 2, .alpha = 1, .marker = 6};
    case LineStyle::kFaint: return {.width = 1.1, .alpha = 0.6, .marker = 0};
    case LineStyle::kDashed: return {.width = 1.6, .alpha = 1, .marker = 0};
    case LineStyle::kDots: return {.width = 0, .alpha = 1, .marker = 5};
    default: return {.width = 1.8, .alpha = 1, .marker = 0};
  }
}

std::string run_color(std::size_t index) { return kRunColors[index % kRunColors.size()]; }

std::span<const double> run_dash(std::size_t index) {
  static const std::array<std::vector<double>, 5> dashes = {{{}, {7, 4}, {2, 3}, {9, 3, 2, 3}, {14, 4}}};
  return dashes[index / kRunColors.size() % dashes.size()];
}

std::string group_color(std::string_view group) {
  const auto known = std::find(kGroups.begin(), kGroups.end(), group);
  if (known != kGroups.end()) return run_color(static_cast<std::size_t>(known - kGroups.begin()));
  std::size_t sum = 0;
  for (const unsigned char letter : group) sum += letter;
  return run_color(sum);
}

std::string ramp_color(std::size_t index, std::size_t count) {
  const double share = count > 1 ? static_cast<double>(index) / static_cast<double>(count - 1) : 0;
  return hex_of(std::round(265 - 235 * share), 0.62, 0.42);
}

}  // namespace gluon::lab
