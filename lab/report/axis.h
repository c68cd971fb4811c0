// Axis: the range of values on one side of a chart, and its ticks.

#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace gluon::lab {

struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  bool log = false;
  bool whole = false;  // its ticks are whole numbers, as steps are

  /// Whether a value has a place on it: it is finite and, on a log scale, above 0.
  bool shows(double value) const;

  /// Extends the range to a value that it shows.
  void include(double value);

  /// Gives the range a width; before it, share() and ticks() are undefined.
  void close();

  /// Widens a closed range at both ends, so that no point is on the edge; a range that begins near 0 begins at 0.
  void pad();

  /// 0 at the low end, 1 at the high one.
  double share(double value) const;

  /// About `count` positions, ascending and finite for every range: multiples of 1, 2 or 5 times a power of ten, or the
  /// ends where there are none. On a log scale powers of ten, if there are at least two.
  std::vector<double> ticks(int count) const;
};

/// The range of most of the values, which a few outliers would stretch: a diverged run or the first sample flattens all
/// others. As on the page (web/src/chart_range.ts).
struct Fence {
  double low;
  double high;
  std::size_t outside;  // values beyond it
};

/// Nothing where everything fits well. The values are those that the axis shows; `log`: distances are ratios.
std::optional<Fence> fence_of(std::vector<double> values, bool log);

/// "0.05", "12k", "3.4M", "1e-05", as on the page.
std::string tick_text(double value);

}  // namespace gluon::lab
