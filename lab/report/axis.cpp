#include "lab/report/axis.h"

#include <algorithm>
#include <cmath>

#include "gluon/core/check.h"
#include "lab/report/report_data.h"

namespace gluon::lab {
namespace {

using Limits = std::numeric_limits<double>;

// Powers of ten, as many of them as there is room for.
std::vector<double> powers(double low, double high, int count) {
  std::vector<double> found;
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  const double step = std::max(std::ceil((last - first) / (2.0 * count)), 1.0);
  for (double power = first; power <= last; power += step) {
    if (const double tick = std::pow(10, power); std::isfinite(tick) && tick > 0) found.push_back(tick);
  }
  return found;
}

}  // namespace

bool Axis::shows(double value) const { return std::isfinite(value) && (!log || value > 0); }

void Axis::include(double value) {
  if (!shows(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

void Axis::close() {
  if (low > high) low = high = 1;
  // Within rounding it is one value: no tick would fit between the ends.
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low > std::max(1e-9 * size, Limits::min())) return;
  const double margin = std::max(0.5, 1e-3 * size);
  low = log ? std::max(low / 2, Limits::denorm_min()) : std::max(low - margin, Limits::lowest());
  high = log ? std::min(high, Limits::max() / 2) * 2 : std::min(high + margin, Limits::max());
}

void Axis::pad() {
  constexpr double kRoom = 0.05;
  const double room = log ? std::max(std::pow(high / low, kRoom), 1.02) : kRoom * (high - low);
  const double wider_low = log ? low / room : low >= 0 && low < room ? 0 : low - room;
  const double wider_high = log ? high * room : high + room;
  if (shows(wider_low)) low = wider_low;
  if (shows(wider_high)) high = wider_high;
}

double Axis::share(double value) const {
  if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value / 2 - low / 2) / (high / 2 - low / 2);  // half: the range may be larger than the largest number
}

std::vector<double> Axis::ticks(int count) const {
  if (log) {
    if (std::vector<double> found = powers(low, high, count); found.size() >= 2) return found;
  }
  const double raw = std::max(high / count - low / count, whole ? 1.0 : 0.0);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  std::vector<double> found;
  // Counted, because beyond 2^53 steps first + 1 is first again; there, and where the step is 0, the ends must do.
  for (int i = 0; i < 2 * count && std::isfinite(first); ++i) {
    const double tick = (first + i) * step;
    if (!std::isfinite(tick) || tick > high + 1e-9 * step || (!found.empty() && tick <= found.back())) break;
    found.push_back(tick);
  }
  if (found.empty()) found.push_back(low);
  return found;
}

std::optional<Fence> fence_of(std::vector<double> values, bool log) {
  constexpr std::size_t kFew = 8;   // fewer values have no outliers
  constexpr double kReach = 3;      // times the distance between the quartiles, as in a box plot's far outliers
  constexpr double kStretch = 2.5;  // what stretches the axis less than this is shown
  if (values.size() < kFew) return std::nullopt;
  if (log) std::ranges::transform(values, values.begin(), [](double value) { return std::log(value); });
  std::ranges::sort(values);
  const double lower = values[values.size() / 4], upper = values[3 * values.size() / 4];
  const double reach = kReach * (upper - lower);
  if (reach == 0 || !std::isfinite(reach)) return std::nullopt;
  const auto first = std::ranges::lower_bound(values, lower - reach);
  const auto last = std::ranges::upper_bound(values, upper + reach);
  const double low = *first, high = *(last - 1);
  if (values.back() - values.front() <= kStretch * (high - low)) return std::nullopt;
  const auto inside = static_cast<std::size_t>(last - first);
  return Fence{log ? std::exp(low) : low, log ? std::exp(high) : high, values.size() - inside};
}

std::string tick_text(double value) {
  struct Unit {
    double size, least;
    const char* name;
  };
  for (const auto& [size, least, name] : {Unit{1e9, 1e9, "B"}, Unit{1e6, 1e6, "M"}, Unit{1e3, 1e4, "k"}}) {
    if (std::abs(value) >= least && std::abs(value) < 1e13) return rounded(value / size) + name;
  }
  return rounded(value);
}

}  // namespace gluon::lab
