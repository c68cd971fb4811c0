#include "gluon/lmo/norm.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"
#include "gluon/core/spec.h"
#include "gluon/lmo/largest_singular_value.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/lmo/safe_norm.h"
#include "gluon/lmo/width_factor.h"

namespace gluon {
namespace {

double root(int64_t size) { return std::sqrt(static_cast<double>(size)); }

// With this norm Gluon is sign descent; Scion uses it for the embedding and the head, scaled by the width n.
class MaxEntryNorm : public Norm {
 public:
  std::string name() const override { return "max_entry"; }
  LmoForm lmo_form() const override { return {.kind = LmoForm::Kind::kSign}; }
  double lmo_length(int64_t rows, int64_t cols) const override { return root(rows) * root(cols); }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return x.abs().amax({1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return g.abs().sum({1, 2}); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return g.sign().neg_(); }
};

// The largest of the Euclidean lengths along `dims`: of rows, of columns or of the whole matrix. A zero row (column)
// stays zero. An embedding stored as (vocabulary, width) holds one token per row: Scion's 1->RMS norm of the transposed
// weight is scaled(1/sqrt(n),rows) here. With "euclidean" Gluon is layer-wise normalized descent; Scion uses it for
// biases, scaled by 1 / sqrt(C).
class LengthNorm : public Norm {
 public:
  LengthNorm(std::string_view name, std::vector<int64_t> dims) : name_(name), dims_(std::move(dims)) {}
  std::string name() const override { return name_; }
  double lmo_length(int64_t rows, int64_t cols) const override {
    return dims_.size() == 2 ? 1 : root(dims_[0] == 1 ? cols : rows);  // one for each column or row
  }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return safe_length(x, dims_).amax({1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return safe_length(g, dims_).sum({1, 2}); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return safe_normalized(g, dims_).neg_(); }

 private:
  std::string name_;
  std::vector<int64_t> dims_;
};

// Every norm without arguments but the spectral one: the one place where a new one is listed.
const std::vector<NormPtr>& plain_norms() {
  using Dims = std::vector<int64_t>;
  static const std::vector<NormPtr> norms{
      std::make_shared<MaxEntryNorm>(), std::make_shared<LengthNorm>("euclidean", Dims{1, 2}),
      std::make_shared<LengthNorm>("columns", Dims{1}), std::make_shared<LengthNorm>("rows", Dims{2})};
  return norms;
}

bool needs_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

// (b, min(m, n)). On the CPU one matrix per thread: LAPACK gains nothing from threads at the sizes of layers.
at::Tensor singular_values(const at::Tensor& x) {
  if (!x.is_cpu() || needs_gradient(x)) return at::linalg_svdvals(x);
  const at::Tensor values = at::empty({x.size(0), std::min(x.size(1), x.size(2))}, x.options());
  const int64_t bytes = values.size(1) * static_cast<int64_t>(values.element_size());
  char* const out = static_cast<char*>(values.data_ptr());
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    // By address: a thread does not inherit inference mode, in which `values` may have been made.
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor found = at::linalg_svdvals(x[i]).contiguous();
      std::memcpy(out + i * bytes, found.data_ptr(), static_cast<std::size_t>(bytes));
    }
  });
  return values;
}

// The dual norm is exact (singular values), and so is the norm, except on a GPU where no gradient of it is wanted:
// there it comes from products alone, up to 5e-4 too small (largest_singular_value.h). The LMO is as exact as the
// orthogonalizer: with "svd" the identities of norm.h hold to rounding; an iteration trades accuracy for speed, and
// <g, lmo(g)> is then the dual norm up to its error. With this norm Gluon is Muon.
class SpectralNorm : public Norm {
 public:
  explicit SpectralNorm(OrthogonalizerPtr orthogonalizer) : orthogonalizer_(std::move(orthogonalizer)) {}

  std::string name() const override {
    const std::string inner = orthogonalizer_->name();
    return inner == kDefaultOrthogonalizer ? "spectral" : join("spectral(", inner, ")");
  }
  LmoForm lmo_form() const override { return orthogonalizer_->polar_form(); }
  double lmo_length(int64_t rows, int64_t cols) const override { return root(std::min(rows, cols)); }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override {
    return x.is_cuda() && !needs_gradient(x) ? largest_singular_values(x) : singular_values(x).amax(-1);
  }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return singular_values(g).sum(-1); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return orthogonalizer_->polar(g).neg_(); }

 private:
  OrthogonalizerPtr orthogonalizer_;
};

// A norm times a positive factor: every width factor of every preset.
class ScaledNorm : public Norm {
 public:
  ScaledNorm(double factor, NormPtr base) : factor_(factor), base_(std::move(base)) {
    GLUON_CHECK(std::isfinite(factor_) && factor_ > 0, "scaled: the factor must be > 0 and finite, got ", factor_);
  }

  std::string name() const override { return join("scaled(", number_text(factor_), ",", base_->name(), ")"); }
  LmoForm lmo_form() const override {
    LmoForm form = base_->lmo_form();
    form.factor /= factor_;
    return form;
  }
  double lmo_length(int64_t rows, int64_t cols) const override { return base_->lmo_length(rows, cols) / factor_; }

 protected:
  // Not in place: autograd may need what the base has returned.
  at::Tensor compute_norm(const at::Tensor& x) const override { return base_->norm(x) * factor_; }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return base_->dual_norm(g) / factor_; }
  at::Tensor compute_lmo(const at::Tensor& g) const override {
    const at::Tensor direction = base_->lmo(g);
    return direction.requires_grad() ? direction * (1 / factor_) : direction.mul_(1 / factor_);
  }

 private:
  double factor_;
  NormPtr base_;
};

at::Tensor checked(const at::Tensor& x, const Norm& norm) {
  GLUON_CHECK(x.dim() == 3, norm.name(), ": expected (b, m, n), got ", x.sizes());
  GLUON_CHECK(at::isFloatingType(x.scalar_type()), norm.name(), ": expected a floating point tensor, got ",
              x.scalar_type());
  return x.to(compute_type(x.scalar_type()));
}

}  // namespace

at::Tensor Norm::norm(const at::Tensor& x) const { return compute_norm(checked(x, *this)); }

at::Tensor Norm::dual_norm(const at::Tensor& g) const { return compute_dual_norm(checked(g, *this)); }

at::Tensor Norm::lmo(const at::Tensor& g) const { return compute_lmo(checked(g, *this)).to(g.scalar_type()); }

double Norm::lmo_length(int64_t rows, int64_t cols) const {
  const at::NoGradGuard no_grad;
  const at::Generator random = at::detail::createCPUGenerator(0);
  return lmo(at::randn({1, rows, cols}, random, at::kDouble)).to(at::kDouble).norm().item<double>();
}

NormPtr make_norm(std::string_view name, const MatrixShape& shape, std::string_view orthogonalizer) {
  const Spec spec = parse_spec(name, "norm");
  const auto& arguments = spec.arguments;
  if (spec.name == "spectral" && arguments.size() <= 1) {
    return std::make_shared<SpectralNorm>(
        make_orthogonalizer(arguments.empty() ? orthogonalizer : std::string_view(arguments[0])));
  }
  if (spec.name == "scaled" && arguments.size() == 2) {
    return std::make_shared<ScaledNorm>(width_factor(arguments[0], shape),
                                        make_norm(arguments[1], shape, orthogonalizer));
  }
  for (const NormPtr& norm : plain_norms()) {
    if (spec.name == norm->name() && arguments.empty()) return norm;
  }
  std::string allowed = "spectral(ORTHOGONALIZER), scaled(FACTOR,NORM)";
  for (const std::string& known : norm_names()) allowed += ", " + known;
  throw InputError(join("norm: unknown name '", name, "'; allowed are ", allowed));
}

std::vector<std::string> norm_names() {
  std::vector<std::string> names{"spectral"};
  for (const NormPtr& norm : plain_norms()) names.push_back(norm->name());
  return names;
}

}  // namespace gluon
