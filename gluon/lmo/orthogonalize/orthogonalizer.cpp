#include "gluon/lmo/orthogonalize/orthogonalizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/core/spec.h"
#include "gluon/lmo/orthogonalize/coefficients.h"
#include "gluon/lmo/orthogonalize/polar_iteration.h"
#include "gluon/lmo/safe_norm.h"

namespace gluon {
namespace {

using Form = PolarOptions::Form;
using Precision = PolarOptions::Precision;

// The exact polar factor, slow (tens of times the iterations) and the measure of all of them. Singular values below
// max(m, n) eps sigma_max are rounding of zero and their vectors are arbitrary, so they are left out.
class SvdOrthogonalizer : public Orthogonalizer {
 public:
  std::string name() const override { return "svd"; }

 private:
  at::Tensor compute_polar(const at::Tensor& batch) const override {
    const at::ScalarType type = batch.scalar_type();
    const double epsilon =
        type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    // Entries near 1: the squares inside the SVD would overflow at 1e30 in float32 and vanish at 1e-30.
    const at::Tensor scaled = batch / one_if_zero(largest_entry(batch, {1, 2}));
    const auto [u, sigma, vh] = at::linalg_svd(scaled, /*full_matrices=*/false);
    const double tolerance = std::max(batch.size(1), batch.size(2)) * epsilon;
    const at::Tensor kept = (sigma > tolerance * sigma.amax({1}, true)).to(type);
    return at::bmm(u * kept.unsqueeze(1), vh);
  }
};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t colon; (colon = text.find(':')) != std::string_view::npos; text.remove_prefix(colon + 1)) {
    parts.push_back(text.substr(0, colon));
  }
  parts.push_back(text);
  return parts;
}

// What so many steps can lift to about 1 without overshooting elsewhere: 4 end in 0.89..1.09 on [5e-3, 1], 8 in
// 0.999..1.001 on [1e-4, 1]. 1e-3 in between is the published table's.
double default_lower(int steps) {
  if (steps <= 4) return 5e-3;
  return steps < 8 ? 1e-3 : 1e-4;
}

int parse_steps(std::string_view text, std::string_view what) {
  const int64_t steps = parse_integer(text, join(what, ": STEPS"));
  GLUON_CHECK(steps >= 1 && steps <= 100, what, ": STEPS must be in 1..100, got ", steps);
  return static_cast<int>(steps);
}

// Reads NAME and what follows it; false when it is no iteration.
bool read_iteration(const std::vector<std::string_view>& parts, std::string_view what, PolarOptions& options) {
  const std::string_view kind = parts.empty() ? std::string_view() : parts[0];
  if (kind == "newton_schulz" && parts.size() <= 2) {
    const int steps = parts.size() > 1 ? parse_steps(parts[1], what) : 5;
    options.name = join(kind, ":", steps);
    options.steps = quintic_steps(jordan_coefficients(steps));
    return true;
  }
  options.bound = SingularBound::kSchatten4;
  if (kind == "polar_squares" && parts.size() <= 2) {
    const auto squares = static_cast<int>(parts.size() > 1 ? parse_integer(parts[1], join(what, ": SQUARES")) : 9);
    options.steps = polar_squares_steps(squares);
    options.name = join(kind, ":", squares);
    options.safety = kSquaresSafety;
    return true;
  }
  if (kind != "polar_express" || parts.size() > 3) return false;
  PolarExpressOptions polar{.steps = parts.size() > 1 ? parse_steps(parts[1], what) : 5};
  polar.lower = parts.size() > 2 ? parse_number(parts[2], join(what, ": LOWER")) : default_lower(polar.steps);
  options.name = join(kind, ":", polar.steps);
  if (polar.lower != default_lower(polar.steps)) options.name += join(":", number_text(polar.lower));
  options.steps = quintic_steps(polar_express_coefficients(polar));
  options.safety = polar.safety;
  return true;
}

}  // namespace

at::Tensor Orthogonalizer::polar(const at::Tensor& batch) const {
  GLUON_CHECK(batch.dim() == 3, "Orthogonalizer: expected (b, m, n), got ", batch.sizes());
  GLUON_CHECK(at::isFloatingType(batch.scalar_type()),
              "Orthogonalizer: expected float64, float32, float16 or bfloat16, got ", batch.scalar_type());
  const at::NoGradGuard no_grad;
  if (batch.numel() == 0) return batch.clone();
  const at::ScalarType type = batch.scalar_type();
  return compute_polar(batch.detach().to(compute_type(type)).contiguous()).to(type);
}

OrthogonalizerPtr make_orthogonalizer(std::string_view name) {
  if (name == "svd") return std::make_shared<SvdOrthogonalizer>();
  std::vector<std::string_view> parts = split(name);
  const auto take = [&](std::string_view prefix) {
    const bool found = !parts.empty() && parts[0] == prefix;
    if (found) parts.erase(parts.begin());
    return found;
  };
  PolarOptions options;
  if (take("float32")) {
    options.precision = Precision::kFloat32;
  } else if (take("bfloat16")) {
    options.precision = Precision::kBFloat16;
  }
  if (take("gram")) {
    options.form = Form::kGram;
  } else if (take("direct")) {
    options.form = Form::kDirect;
  }
  GLUON_CHECK(
      read_iteration(parts, join("orthogonalizer '", name, "'"), options), "unknown orthogonalizer '", name,
      "'; allowed: svd, newton_schulz[:STEPS], polar_express[:STEPS[:LOWER]], polar_squares[:8|:9], and the last "
      "three after gram:, direct:, float32: or bfloat16:");
  return std::make_shared<PolarIteration>(std::move(options));
}

}  // namespace gluon
