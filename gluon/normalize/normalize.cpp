#include "gluon/normalize/normalize.h"

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

// Sums in float64, so that their order, which threads and ranks change, does not show in float32.
at::Tensor length(const at::Tensor& matrices) {
  return at::linalg_vector_norm(matrices, 2, {1, 2}, /*keepdim=*/true, at::kDouble);
}

at::Tensor mean_of_columns(const at::Tensor& entries) {
  return entries.mean(-1, /*keepdim=*/true, at::kDouble).to(entries.scalar_type());
}

}  // namespace

Normalize::Normalize(Kind kind, double beta2, double eps) : kind_(kind), beta2_(beta2), eps_(eps) {
  GLUON_CHECK(beta2 >= 0 && beta2 < 1, "Normalize: beta2 must be in [0, 1), got ", beta2);
  // Far beyond O, whose entries are about 1, and far below the end of float32.
  constexpr double kLargestEps = 1e30;
  GLUON_CHECK(eps >= 0 && eps <= kLargestEps, "Normalize: eps must be in [0, ", kLargestEps, "], got ", eps);
}

Normalize Normalize::normuon(double beta2, double eps) { return {Kind::kRows, beta2, eps}; }
Normalize Normalize::adamuon(double beta2, double eps) { return {Kind::kEntries, beta2, eps}; }

at::Tensor Normalize::state_of(const at::Tensor& entries) const {
  if (kind_ != Kind::kRows) return entries;
  // Relative to the first, so that the mean of equal entries is that entry to the bit.
  const at::Tensor first = entries.narrow(-1, 0, 1);
  return first + mean_of_columns(entries - first);
}

void Normalize::fold(const at::Tensor& direction, at::Tensor second, double unit) const {
  if (is_none()) return;
  const at::Tensor squares = (direction / unit).square_();
  // Products and sums one by one: fused, their rounding would depend on an entry's place in the stack.
  second.mul_(beta2_).add_(kind_ == Kind::kRows ? mean_of_columns(squares).mul_(1 - beta2_) : squares * (1 - beta2_));
}

at::Tensor Normalize::heading(const at::Tensor& direction, const at::Tensor& second, double unit) const {
  if (is_none()) return direction;
  at::Tensor scaled = direction / unit;
  const at::Tensor before = length(scaled);
  at::Tensor divisor = second.sqrt().add_(eps_);
  scaled.div_(divisor.masked_fill_(divisor == 0, 1));
  const at::Tensor after = length(scaled);
  const at::Tensor back = (before / after.masked_fill(after == 0, 1)).mul_(unit);
  return scaled.mul_(back.to(scaled.scalar_type()));
}

std::string Normalize::name() const {
  if (is_none()) return "none";
  const char* kind = kind_ == Kind::kRows ? "normuon" : "adamuon";
  return eps_ == 0 ? spec_text(kind, {beta2_}) : spec_text(kind, {beta2_, eps_});
}

Normalize Normalize::parse(std::string_view name) {
  const Spec spec = parse_spec(name, "normalize");
  const auto& arguments = spec.arguments;
  if (spec.name == "none" && arguments.empty()) return {};
  if ((spec.name == "normuon" || spec.name == "adamuon") && (arguments.size() == 1 || arguments.size() == 2)) {
    return {spec.name == "normuon" ? Kind::kRows : Kind::kEntries, parse_number(arguments[0], "normalize"),
            arguments.size() == 2 ? parse_number(arguments[1], "normalize") : 0};
  }
  throw InputError(
      join("normalize: unknown name '", name, "'; allowed are none, normuon(BETA2[,EPS]), adamuon(BETA2[,EPS])"));
}

}  // namespace gluon
