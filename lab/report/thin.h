// Thinning: selects points of a long series so that its chart looks the same.
//
// Of each of many equal parts the smallest and the largest value are kept, so no spike is lost. Values that are not
// finite (a run that diverged) are a gap in the chart; one per part is kept, too.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gluon::lab {

/// Ascending indices of at most `limit` values, including the first and the last; all of them if they are not more.
/// Throws InputError when `limit` is below 8.
std::vector<std::size_t> thin(std::span<const double> values, std::size_t limit);

}  // namespace gluon::lab
