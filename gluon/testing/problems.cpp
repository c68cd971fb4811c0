#include "gluon/testing/problems.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

double inner_product(const at::Tensor& x, const at::Tensor& y) { return (x * y).sum().item<double>(); }

double dual_of(const Norm& norm, const at::Tensor& g) { return norm.dual_norm(g.unsqueeze(0)).item<double>(); }

// scaled(c1,scaled(c2,...)) taken apart: the norm is factor * (the norm called `base`).
struct NormParts {
  std::string base;
  double factor = 1;
};

NormParts parts_of(const Norm& norm) {
  NormParts parts;
  Spec spec = parse_spec(norm.name(), "norm");
  while (spec.name == "scaled" && spec.arguments.size() == 2) {
    parts.factor *= parse_number(spec.arguments[0], "norm");
    spec = parse_spec(spec.arguments[1], "norm");
  }
  parts.base = spec.name;
  constexpr std::string_view kKnown[] = {"spectral", "max_entry", "euclidean", "columns", "rows"};
  GLUON_CHECK(std::find(std::begin(kKnown), std::end(kKnown), parts.base) != std::end(kKnown),
              "Quadratic: constants are known for spectral, max_entry, euclidean, columns, rows and scaled, got ",
              norm.name());
  return parts;
}

}  // namespace

// ---- Quadratic ----

Quadratic::Quadratic(const at::Tensor& minimiser, const at::Tensor& curvature)
    : minimiser_(minimiser.to(at::kDouble)), curvature_(curvature.to(at::kDouble)) {
  GLUON_CHECK(minimiser_.dim() == 2 && curvature_.dim() == 1 && curvature_.size(0) == minimiser_.size(1),
              "Quadratic: expected a minimiser (m, n) and a curvature (n), got ", minimiser_.sizes(), " and ",
              curvature_.sizes());
  GLUON_CHECK((curvature_ > 0).all().item<bool>(), "Quadratic: the curvature must be > 0, got ",
              curvature_.min().item<double>());
}

double Quadratic::value(const at::Tensor& x) const {
  const at::Tensor z = x - minimiser_;
  return inner_product(z * z, curvature_) / 2;
}

at::Tensor Quadratic::gradient(const at::Tensor& x) const { return (x - minimiser_) * curvature_; }

// The gradient is linear, so L0 = max |zH|* / |z| and L1 = 0, at any distance. In order, with equality at
// stiffest_direction():
//   spectral   |zH|* = sum sigma_i(zH) <= sum sigma_i(z) sigma_i(H) <= |z| (sum of the min(m, n) largest h)
//   max_entry  sum |z_ij| h_j <= |z| m tr H
//   euclidean  |zH| <= |z| max h
//   columns    sum_j h_j |z_:j| <= |z| tr H
//   rows       sum_i |(zH)_i:| <= max h sum_i |z_i:| <= |z| m max h
//   scaled     (|zH|* / c) / (c |z|)
Smoothness Quadratic::smoothness(const Norm& norm) const {
  const auto [base, factor] = parts_of(norm);
  const auto rows = static_cast<double>(minimiser_.size(0));
  const int64_t rank = std::min(minimiser_.size(0), minimiser_.size(1));
  const double trace = curvature_.sum().item<double>();
  const double largest = curvature_.max().item<double>();
  double l0 = largest;  // euclidean
  if (base == "spectral") l0 = std::get<0>(curvature_.topk(rank)).sum().item<double>();
  if (base == "max_entry") l0 = rows * trace;
  if (base == "columns") l0 = trace;
  if (base == "rows") l0 = rows * largest;
  return {.l0 = l0 / (factor * factor)};
}

at::Tensor Quadratic::stiffest_direction(const Norm& norm) const {
  const std::string base = parts_of(norm).base;
  at::Tensor z = at::zeros_like(minimiser_);
  const at::Tensor by_curvature = curvature_.argsort(0, /*descending=*/true);
  const int64_t stiffest = by_curvature[0].item<int64_t>();
  if (base == "spectral") {
    const int64_t rank = std::min(z.size(0), z.size(1));
    z.index_put_({at::arange(rank), by_curvature.narrow(0, 0, rank)}, at::ones({rank}, at::kDouble));
  }
  if (base == "max_entry") z.fill_(1);
  if (base == "euclidean") z[0][stiffest] = 1;
  if (base == "columns") z[0].fill_(1);
  if (base == "rows") z.select(1, stiffest).fill_(1);
  return z;
}

// 2 (f - 0) = sum z_ij^2 h_j and |grad|_F^2 = sum z_ij^2 h_j^2 is at least min h times that. The dual norms
// are at least Frobenius, because the norms are at most Frobenius, and equal it for z with one entry: the
// minimum is reached by that entry in the flattest column, so no larger mu holds in any of them.
double Quadratic::pl_constant(const Norm& norm) const {
  const double factor = parts_of(norm).factor;
  return curvature_.min().item<double>() / (factor * factor);
}

// ---- functions of u = <C, x> ----

Ridge::Ridge(Kind kind, const at::Tensor& slope) : kind_(kind), slope_(slope.to(at::kDouble)) {
  GLUON_CHECK(slope_.dim() == 2, "Ridge: expected a slope (m, n), got ", slope_.sizes());
  GLUON_CHECK((slope_ != 0).any().item<bool>(), "Ridge: the slope must not be zero");
}

double Ridge::value(const at::Tensor& x) const {
  const double u = inner_product(slope_, x);
  return kind_ == kCosh ? std::cosh(u) : std::exp(u);
}

at::Tensor Ridge::gradient(const at::Tensor& x) const {
  const double u = inner_product(slope_, x);
  return slope_ * (kind_ == kCosh ? std::sinh(u) : std::exp(u));
}

// By Hoelder |u - v| <= s for s = |C|* |x - y|, with equality along lmo(C): the rest is about one variable.
//   exp    |e^u - e^v| <= e^u (e^s - 1), with equality for v >= u
//   cosh   sinh(u + r) - sinh u = sinh u (cosh r - 1) + cosh u sinh r and cosh u <= 1 + |sinh u| give, for |r| <= s,
//          |sinh(u + r) - sinh u| <= |sinh u| (e^s - 1) + sinh s
// (e^s - 1) / s and sinh(s) / s increase in s: their values at the largest distance are L1 / |C|* and L0 / |C|*^2. The
// step 1 / L1 of theorem 1 is the largest distance where e^s - 1 = 1, and sinh(ln 2) = 3/4. No constant can be smaller:
// at u = 0 only sinh s is left, and for u -> inf only the other term counts, whatever L0 is.
Smoothness Ridge::smoothness(const Norm& norm) const {
  const double size = dual_of(norm, slope_);
  return {.l0 = kind_ == kCosh ? size * size * (0.75 / std::numbers::ln2) : 0,
          .l1 = size / std::numbers::ln2,
          .distance = std::numbers::ln2 / size};
}

// |grad|*^2 = |C|*^2 (cosh u - 1) (cosh u + 1) >= 2 |C|*^2 (cosh u - 1), with equality in the limit u -> 0; for exp
// |grad|*^2 / f = |C|*^2 e^u has infimum 0.
double Ridge::pl_constant(const Norm& norm) const { return kind_ == kCosh ? std::pow(dual_of(norm, slope_), 2) : 0; }

// ---- Problem ----

std::vector<Layer> Problem::layers() const {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < start.size(); ++i) layers.push_back({join("layer", i), start[i].clone(), Role::kHidden});
  return layers;
}

double Problem::value(std::span<const Layer> layers) const {
  double sum = 0;
  for (std::size_t i = 0; i < objectives.size(); ++i) sum += objectives[i]->value(layers[i].parameter.detach());
  return sum;
}

void Problem::write_gradients(std::span<const Layer> layers) const {
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    const at::Tensor& parameter = layers[i].parameter;
    parameter.mutable_grad() = objectives[i]->gradient(parameter.detach());
  }
}

double Problem::infimum() const {
  double sum = 0;
  for (const auto& objective : objectives) sum += objective->infimum();
  return sum;
}

// With the other layers at their infimum the inequality is that of one layer: the smallest of them is sharp.
double Problem::pl_constant(std::span<const NormPtr> norms) const {
  double smallest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    smallest = std::min(smallest, objectives[i]->pl_constant(*norms[i]));
  }
  return smallest;
}

Problem make_problem(std::string_view name, std::span<const MatrixShape> shapes, uint64_t seed) {
  constexpr std::string_view kKinds[] = {"quadratic", "exponential", "cosh"};
  GLUON_CHECK(name == "mixed" || std::find(std::begin(kKinds), std::end(kKinds), name) != std::end(kKinds),
              "problem: unknown name '", name, "'; allowed are quadratic, exponential, cosh, mixed");
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Problem problem;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto [batch, m, n, kernel] = shapes[i];
    GLUON_CHECK(batch == 1 && m > 0 && n > 0, "problem: expected one matrix per layer, got (", batch, ", ", m, ", ", n,
                ")");
    const auto size = static_cast<double>(i + 1);
    const std::string_view kind = name == "mixed" ? kKinds[i % 3] : name;
    const at::Tensor random = at::randn({m, n}, generator, at::kDouble);
    at::Tensor start = at::randn({m, n}, generator, at::kDouble);
    if (kind == "quadratic") {
      const at::Tensor spread = at::rand({n}, generator, at::kDouble);
      problem.objectives.push_back(std::make_shared<Quadratic>(random, (spread + 0.2) * size));
    } else {
      // <C, start> = 3: a few halvings away from the flat part, far from overflow.
      const at::Tensor slope = random * (0.2 * size);
      start = start + slope * ((3 - inner_product(slope, start)) / inner_product(slope, slope));
      const Ridge::Kind phi = kind == "cosh" ? Ridge::kCosh : Ridge::kExponential;
      problem.objectives.push_back(std::make_shared<Ridge>(phi, slope));
    }
    problem.start.push_back(start);
  }
  return problem;
}

}  // namespace gluon
