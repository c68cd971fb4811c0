#include "gluon/theory/guarantee.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gluon/core/check.h"

namespace gluon::theory {
namespace {

double largest(const std::vector<LayerConstants>& layers, double LayerConstants::*constant) {
  double result = 0;
  for (const LayerConstants& layer : layers) result = std::max(result, layer.*constant);
  return result;
}

}  // namespace

double Constants::sum_l0() const {
  double sum = 0;
  for (const LayerConstants& layer : layers) sum += layer.l0;
  return sum;
}

double Constants::max_l0() const { return largest(layers, &LayerConstants::l0); }
double Constants::max_l1() const { return largest(layers, &LayerConstants::l1); }
bool Constants::l1_is_zero() const { return max_l1() == 0; }

std::string Constants::layer_text(std::size_t index) const {
  const std::string& name = layers[index].name;
  return name.empty() ? join("layer ", index + 1) : join("layer '", name, "'");
}

void Constants::validate(std::string_view who) const {
  GLUON_CHECK(!layers.empty(), who, ": expected L0 and L1 of at least one layer, got none");
  GLUON_CHECK(std::isfinite(initial_gap) && initial_gap >= 0, who, ": Delta0 must be >= 0 and finite, got ",
              initial_gap);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& [l0, l1, t, noise_factor, name] = layers[i];
    GLUON_CHECK(std::isfinite(l0) && std::isfinite(l1) && l0 >= 0 && l1 >= 0 && l0 + l1 > 0, who,
                ": L0 and L1 must be >= 0 and not both 0, got L0 = ", l0, ", L1 = ", l1, " for ", layer_text(i));
    GLUON_CHECK(!t || (std::isfinite(*t) && *t > 0), who, ": t must be > 0 and finite, got ", t.value_or(0), " for ",
                layer_text(i));
    GLUON_CHECK(std::isfinite(noise_factor) && noise_factor >= 1, who, ": the noise factor must be >= 1, got ",
                noise_factor, " for ", layer_text(i));
  }
}

double Guarantee::iterations(double precision) const {
  GLUON_CHECK(std::isfinite(precision) && precision > 0, theorem, ": eps must be > 0 and finite, got ", precision);
  const double real = needed(precision);
  GLUON_CHECK(std::isfinite(real), theorem, ": K overflows double for eps = ", precision);
  // In floating point 2 / 0.1^2 is slightly more than 200: rounding must not cost an iteration.
  constexpr double kRounding = 8 * std::numeric_limits<double>::epsilon();
  return std::max(counts_steps ? 0.0 : 1.0, std::ceil(real * (1 - kRounding)));
}

}  // namespace gluon::theory
