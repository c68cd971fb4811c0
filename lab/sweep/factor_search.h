// FactorSearch: the factor on a law for radii that ends with the lowest loss, from a few trials.
//
//   factor = start 2^x
//   1. moves of 3 in x (x8), first towards factor 1, until the neighbours on both sides are worse
//   2. moves of 1 (x2) from there
//   3. the vertex of the parabola in x through the best trial and its neighbours
//
// The loss is taken to fall and then rise in x. A loss that is not finite counts as infinite, and so does all above it. A
// move needs a lower loss, so that where trials tie the search stays.

#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace gluon::lab {

/// The loss of a short run at a factor, NaN or infinite when it diverged; nothing when it was stopped.
using FactorTrial = std::function<std::optional<double>(double factor)>;

struct TriedFactor {
  double factor = 0;
  double loss = 0;  // infinite when the trial diverged
};

struct FactorSearch {
  std::vector<TriedFactor> tried;  // in order
  std::optional<double> factor;    // nothing when no trial had a finite loss
  bool settled = false;            // the neighbours on both sides were tried at a distance of x2, and one is worse
  bool flat = false;               // neither is
  bool stopped = false;
};

/// The fewest trials that settle a search whose start is within x2 of the best: three moves of x8 and two of x2.
inline constexpr int kFewestTrials = 5;

/// Enough from starts that are 100 times too small or too large.
inline constexpr int kMostTrials = 9;

/// Searches from `start` > 0 with at most `most` >= 1 trials.
FactorSearch search_factor(double start, int most, const FactorTrial& trial);

}  // namespace gluon::lab
