// Thinning: long series become short ones whose charts look the same.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gluon::lab {

/// Selects points of a long series so that its chart looks the same: of each of many equal parts the smallest and the
/// largest value, so no spike is lost, and one that is not finite (a run that diverged), which is a gap in the chart.
/// Returns ascending indices of at most `limit` values, including the first and the last; all of them if they are not
/// more. Throws InputError when `limit` is below 8.
std::vector<std::size_t> thin(std::span<const double> values, std::size_t limit);

}  // namespace gluon::lab
