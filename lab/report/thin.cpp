#include "lab/report/thin.h"

#include <cmath>
#include <numeric>
#include <optional>

#include "gluon/core/check.h"

namespace gluon::lab {

std::vector<std::size_t> thin(std::span<const double> values, std::size_t limit) {
  GLUON_CHECK(limit >= 8, "thin: limit must be >= 8, got ", limit);
  std::vector<std::size_t> kept;
  if (values.size() <= limit) {
    kept.resize(values.size());
    std::iota(kept.begin(), kept.end(), std::size_t{0});
    return kept;
  }
  const std::size_t last = values.size() - 1;
  const std::size_t parts = (limit - 2) / 3;  // up to three points each, between the first and the last
  kept.push_back(0);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = 1 + i * (last - 1) / parts;
    const std::size_t end = 1 + (i + 1) * (last - 1) / parts;
    std::optional<std::size_t> least, greatest, gap;
    for (std::size_t k = begin; k < end; ++k) {
      if (!std::isfinite(values[k])) {
        if (!gap) gap = k;
        continue;
      }
      if (!least || values[k] < values[*least]) least = k;
      if (!greatest || values[k] > values[*greatest]) greatest = k;
    }
    for (std::size_t k = begin; k < end; ++k) {
      if (k == least || k == greatest || k == gap) kept.push_back(k);
    }
  }
  kept.push_back(last);
  return kept;
}

}  // namespace gluon::lab
