#include "gluon/radius/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {

Schedule::Schedule(Kind kind, int64_t total, int64_t cooldown, double floor, int64_t warmup_steps)
    : kind_(kind), total_(total), cooldown_(cooldown), floor_(floor), warmup_steps_(warmup_steps) {
  GLUON_CHECK(warmup_steps >= 0, "Schedule: warmup must be >= 0 steps, got ", warmup_steps);
  if (kind == Kind::kConstant) return;
  GLUON_CHECK(total >= 1, "Schedule: total must be >= 1 steps, got ", total);
  GLUON_CHECK(cooldown >= 0 && cooldown <= total, "Schedule: cooldown must be in [0, total = ", total, "], got ",
              cooldown);
  GLUON_CHECK(floor >= 0 && floor <= 1, "Schedule: floor must be in [0, 1], got ", floor);
  GLUON_CHECK(warmup_steps <= total - cooldown, "Schedule: warmup and cooldown must fit into total = ", total, ", got ",
              warmup_steps, " + ", cooldown);
}

Schedule Schedule::warmup(int64_t warmup_steps) { return {Kind::kConstant, 0, 0, 0, warmup_steps}; }

Schedule Schedule::linear(int64_t total, int64_t cooldown, int64_t warmup_steps) {
  return {Kind::kLinear, total, cooldown, 0, warmup_steps};
}

Schedule Schedule::cosine(int64_t total, double floor, int64_t warmup_steps) {
  return {Kind::kCosine, total, 0, floor, warmup_steps};
}

double Schedule::multiplier(int64_t step) const {
  if (step < warmup_steps_) return static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  const auto left = static_cast<double>(std::max<int64_t>(total_ - step, 1));
  switch (kind_) {
    case Kind::kConstant: return 1;
    case Kind::kLinear: return std::min(1.0, left / static_cast<double>(std::max<int64_t>(cooldown_, 1)));
    case Kind::kCosine: {
      const double share = left / static_cast<double>(std::max<int64_t>(total_ - warmup_steps_, 1));
      return floor_ + (1 - floor_) * 0.5 * (1 - std::cos(std::numbers::pi * share));
    }
  }
  return 1;
}

std::string Schedule::name() const {
  switch (kind_) {
    case Kind::kConstant: return warmup_steps_ == 0 ? "constant" : join("warmup(", warmup_steps_, ")");
    case Kind::kLinear: return join("linear(", total_, ",", cooldown_, ",", warmup_steps_, ")");
    case Kind::kCosine: return join("cosine(", total_, ",", number_text(floor_), ",", warmup_steps_, ")");
  }
  return {};
}

Schedule make_schedule(std::string_view name) {
  const Spec spec = parse_spec(name, "schedule");
  const auto& arguments = spec.arguments;
  const auto steps = [&](std::size_t i) { return i < arguments.size() ? parse_integer(arguments[i], "schedule") : 0; };
  if (spec.name == "constant" && arguments.empty()) return {};
  if (spec.name == "warmup" && arguments.size() == 1) return Schedule::warmup(steps(0));
  if (spec.name == "linear" && (arguments.size() == 2 || arguments.size() == 3)) {
    return Schedule::linear(steps(0), steps(1), steps(2));
  }
  if (spec.name == "cosine" && !arguments.empty() && arguments.size() <= 3) {
    return Schedule::cosine(steps(0), arguments.size() > 1 ? parse_number(arguments[1], "schedule") : 0, steps(2));
  }
  throw InputError(join("schedule: unknown name '", name,
                        "'; allowed are constant, warmup(STEPS), linear(TOTAL,COOLDOWN[,WARMUP]), "
                        "cosine(TOTAL[,FLOOR[,WARMUP]])"));
}

}  // namespace gluon
