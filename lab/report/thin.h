// Thinning: fewer points of a long series that look the same when drawn.
//
// The series is cut into equal stretches, and of each the least and the greatest value stay: no spike is lost, however
// narrow. Values that are not finite (a run that diverged) mark a gap and one of each stretch stays, too.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gluon::lab {

/// Rising indices into `values` of at most `limit` points, the first and the last among them; all of them when there
/// are no more. `limit` must be at least 8.
std::vector<std::size_t> thin(std::span<const double> values, std::size_t limit);

}  // namespace gluon::lab
