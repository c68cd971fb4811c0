// Schedule: the factor in (0, 1] that multiplies every radius at step k = 0, 1, ...
//
//   constant                     1
//   warmup(w)                    (k+1)/w up to 1
//   linear(total,cooldown)       1, then falling linearly to 0 over the last `cooldown` of `total` steps
//   cosine(total,floor)          from 1 to `floor` along half a cosine
//
// linear and cosine take a warmup too: linear(5000,1450,100). Past `total` the last value stays. The radius
// never becomes 0 within `total` steps: the last step of linear uses 1/cooldown.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gluon {

class Schedule {
 public:
  Schedule() = default;  // constant
  static Schedule warmup(int64_t warmup_steps);
  static Schedule linear(int64_t total, int64_t cooldown, int64_t warmup_steps = 0);
  static Schedule cosine(int64_t total, double floor = 0, int64_t warmup_steps = 0);

  double multiplier(int64_t step) const;

  /// The name that make_schedule() turns back into this object.
  std::string name() const;

 private:
  enum class Kind { kConstant, kLinear, kCosine };
  Schedule(Kind kind, int64_t total, int64_t cooldown, double floor, int64_t warmup_steps);

  Kind kind_ = Kind::kConstant;
  int64_t total_ = 0;
  int64_t cooldown_ = 0;
  double floor_ = 0;
  int64_t warmup_steps_ = 0;
};

/// Inverse of Schedule::name(). Throws InputError that lists the names.
Schedule make_schedule(std::string_view name);

}  // namespace gluon
