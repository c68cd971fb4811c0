#include "lab/sweep/factor_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

// Moves in x = log2(factor / start).
constexpr int kCoarse = 3, kFine = 1;

class Search {
 public:
  Search(double start, int most, const FactorTrial& trial)
      : start_(start), most_(static_cast<std::size_t>(most)), trial_(trial) {}

  FactorSearch run() {
    const int towards_law = start_ > 1 ? -1 : 1;
    result_.settled = try_at(0) && descend(kCoarse, towards_law) && descend(kFine, lower_side());
    if (!losses_.empty() && !diverges(best_)) result_.factor = factor_at(vertex());
    result_.flat =
        result_.settled && std::max(losses_.at(best_ - kFine), losses_.at(best_ + kFine)) == losses_.at(best_);
    result_.settled = result_.settled && !result_.flat;
    return result_;
  }

 private:
  double factor_at(double x) const { return start_ * std::exp2(x); }
  bool diverges(int x) const { return std::isinf(losses_.at(x)); }

  // False when the trial is one too many or was stopped.
  bool try_at(int x) {
    if (losses_.contains(x)) return true;
    if (result_.tried.size() == most_) return false;
    const double factor = factor_at(x);
    const std::optional<double> loss = trial_(factor);
    result_.stopped = !loss;
    if (!loss) return false;
    losses_[x] = std::isfinite(*loss) ? *loss : std::numeric_limits<double>::infinity();
    result_.tried.push_back({factor, losses_[x]});
    return true;
  }

  // Moves by `step` to a lower loss, on the side of `direction` first, until neither side has one. False as try_at().
  bool descend(int step, int direction) {
    for (;;) {
      int next = best_;
      for (const int side : {direction, -direction}) {
        const int x = best_ + side * step;
        if (side > 0 && diverges(best_)) continue;
        if (!try_at(x)) return false;
        if (losses_.at(x) >= losses_.at(best_) && !diverges(best_)) continue;
        next = x;
        direction = side;
        break;
      }
      if (next == best_) return true;
      best_ = next;
    }
  }

  // Where the neighbour at a distance of x8 says that the minimum is.
  int lower_side() const { return losses_.at(best_ + kCoarse) < losses_.at(best_ - kCoarse) ? 1 : -1; }

  double vertex() const {
    const auto middle = losses_.find(best_);
    const auto right = std::next(middle);
    if (middle == losses_.begin() || right == losses_.end()) return best_;
    const auto left = std::prev(middle);
    if (std::isinf(left->second) || std::isinf(right->second)) return best_;
    const double before = best_ - left->first, after = right->first - best_;
    const double fall = left->second - middle->second, rise = right->second - middle->second;
    const double curvature = before * rise + after * fall;
    if (curvature == 0) return best_;  // flat
    return best_ + (after * after * fall - before * before * rise) / (2 * curvature);
  }

  double start_;
  std::size_t most_;
  const FactorTrial& trial_;
  FactorSearch result_;
  std::map<int, double> losses_;
  int best_ = 0;
};

}  // namespace

FactorSearch search_factor(double start, int most, const FactorTrial& trial) {
  GLUON_CHECK(std::isfinite(start) && start > 0, "tune: the first factor must be > 0 and finite, got ", start);
  GLUON_CHECK(most >= 1, "tune: the number of trials must be >= 1, got ", most);
  return Search(start, most, trial).run();
}

}  // namespace gluon::lab
