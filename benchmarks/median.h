// The median of timings: what every benchmark reports.

#pragma once

#include <algorithm>
#include <vector>

namespace gluon::benchmarks {

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace gluon::benchmarks
