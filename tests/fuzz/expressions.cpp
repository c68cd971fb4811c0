#include "gluon/geometry/geometry.h"
#include "gluon/geometry/presets.h"
#include "gluon/lmo/norm.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/lmo/width_factor.h"
#include "gluon/momentum/momentum.h"
#include "gluon/normalize/normalize.h"
#include "gluon/radius/decay.h"
#include "gluon/radius/radius.h"
#include "gluon/radius/schedule.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/sweep/sweep.h"
#include "lab/train/radius_flag.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

// The first byte selects the kind of expression, the rest is its text. Names read back to themselves.
void gluon::fuzz::expressions(std::string_view bytes) {
  if (bytes.empty()) return;
  const int kind = static_cast<unsigned char>(bytes[0]) % 13;
  const std::string_view text = bytes.substr(1);
  const MatrixShape shape{.rows = 8, .cols = 6};
  const auto round_trip = [](auto make, const auto& name) { require(make(name) == name); };
  switch (kind) {
    case 0: {
      const auto name = [&](std::string_view given) { return make_norm(given, shape)->name(); };
      return round_trip(name, name(text));
    }
    case 1: {
      const auto name = [](std::string_view given) { return make_orthogonalizer(given)->name(); };
      return round_trip(name, name(text));
    }
    case 2: {
      const auto name = [](std::string_view given) { return make_momentum(given).name(); };
      return round_trip(name, name(text));
    }
    case 3: {
      const auto name = [](std::string_view given) { return make_radius(given)->name(); };
      return round_trip(name, name(text));
    }
    case 4: {
      const auto name = [](std::string_view given) { return make_schedule(given).name(); };
      for (const int64_t step : {int64_t{0}, int64_t{1000}, int64_t{1} << 62}) {
        require(make_schedule(text).multiplier(step) >= 0);
      }
      return round_trip(name, name(text));
    }
    case 5: return static_cast<void>(width_factor(text, shape));
    case 6: {
      const std::string radii(text);
      return static_cast<void>(
          lab::with_radius_rules(presets::make("unscion", lab::parse_radii(radii)), "unscion", radii));
    }
    case 7: return static_cast<void>(lab::parse_axis(std::string(text)));
    case 8: return static_cast<void>(parse_estimator(text));
    case 9: return static_cast<void>(glob_match(text.substr(0, text.size() / 2), text.substr(text.size() / 2)));
    case 10: return static_cast<void>(Geometry({{.pattern = "*", .norm = std::string(text)}}));
    case 11: {
      const auto name = [](std::string_view given) { return Normalize(given).name(); };
      return round_trip(name, name(text));
    }
    default: {
      const auto name = [](std::string_view given) { return Decay(given).name(); };
      require(Decay(text).weight(1000) >= 0);
      return round_trip(name, name(text));
    }
  }
}
