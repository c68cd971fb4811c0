#include "gluon/lmo/orthogonalize/quintic_iteration.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/lmo/orthogonalize/blas.h"
#include "gluon/lmo/safe_norm.h"

namespace gluon {
namespace {

using Form = QuinticOptions::Form;
using Precision = QuinticOptions::Precision;

// An update multiplies the rounding errors of R, some of them negative eigenvalues, by a^2: they reach
// eps gain^2, with gain = product of a since the last restart. In float32 against float64, for condition
// numbers 1e2..1e6 and rank 8 plus noise, gain <= 50 keeps the rms error below 1e-4 or at that of the direct
// form for up to 40 steps; without restarts 8 steps are off by 0.08 and 15 overflow. Up to five steps end 0.1
// from 1 by themselves, so there 500 will do: no restart at the usual coefficients, rms error below 5e-3.
constexpr double kMaxGain = 50, kMaxRoughGain = 500;
constexpr std::size_t kRoughSteps = 5;

// One thread's workspace for matrices of one shape, and the iteration on one of them.
template <typename Real> class MatrixIteration {
 public:
  MatrixIteration(const QuinticPlan& plan, int64_t rows, int64_t columns)
      : plan_(plan), rows_(rows), columns_(columns), side_(std::min(rows, columns)) {
    const std::size_t square = side_ * side_;
    x_.resize(rows * columns);
    r_.resize(square);
    z_.resize(square);
    for (std::size_t step = 0; step + 1 < plan.restart.size(); ++step) {
      if (plan.restart[step]) continue;
      q_.resize(square);
      product_.resize(square);
    }
    multiplications_ = std::count(plan.restart.begin(), plan.restart.end() - 1, true) + 1;
  }

  void polar(const Real* input, Real largest, Real* result) {
    // X moves between the workspace and `result` with every multiplication; it must end in `result`.
    Real* x = multiplications_ % 2 == 1 ? x_.data() : result;
    Real* other = multiplications_ % 2 == 1 ? result : x_.data();
    for (int64_t i = 0; i < rows_ * columns_; ++i) x[i] = input[i] / largest;
    gram(x);

    // The division by k goes into the first row: p(s/k) = (a/k) s + (b/k^3) s^3 + (c/k^5) s^5.
    const double k = plan_.safety * singular_bound();
    const std::size_t steps = plan_.coefficients.size();
    bool fresh = true;  // Q = I
    for (std::size_t step = 0; step < steps; ++step) {
      Quintic row = plan_.coefficients[step];
      if (step == 0) row = {row.a / k, row.b / std::pow(k, 3), row.c / std::pow(k, 5)};
      form_step(row);
      const bool last = step + 1 == steps;
      if (!fresh) commuting_product(q_, z_, q_);
      std::vector<Real>& q = fresh ? z_ : q_;
      if (last || plan_.restart[step]) {
        multiply(q.data(), x, other);
        std::swap(x, other);
        if (!last) gram(x);
        fresh = true;
      } else {
        commuting_product(z_, r_, r_);
        commuting_product(r_, z_, r_);
        if (fresh) std::swap(q_, z_);
        fresh = false;
      }
    }
  }

 private:
  // At least the largest singular value of the matrix whose Gram matrix is r.
  double singular_bound() const {
    double sum = 0;
    if (plan_.bound == SingularBound::kFrobenius) {
      for (int64_t i = 0; i < side_; ++i) sum += r_[i * side_ + i];
      return std::sqrt(sum);
    }
    for (const Real entry : r_) sum += static_cast<double>(entry) * entry;
    return std::sqrt(std::sqrt(sum));
  }

  // z = a I + b r + c r r
  void form_step(const Quintic& row) {
    z_ = r_;
    blas::add_square(side_, static_cast<Real>(row.c), r_.data(), static_cast<Real>(row.b), z_.data());
    for (int64_t i = 0; i < side_; ++i) z_[i * side_ + i] += static_cast<Real>(row.a);
    blas::mirror_upper(side_, z_.data());
  }

  void gram(const Real* x) {
    blas::gram(rows_, columns_, x, r_.data());
    blas::mirror_upper(side_, r_.data());
  }

  void multiply(const Real* q, const Real* x, Real* result) {
    if (rows_ <= columns_) {
      blas::multiply(rows_, columns_, rows_, q, x, result);
    } else {
      blas::multiply(rows_, columns_, columns_, x, q, result);
    }
  }

  // result = a b, where result may be one of them
  void commuting_product(const std::vector<Real>& a, const std::vector<Real>& b, std::vector<Real>& result) {
    blas::commuting_product(side_, a.data(), b.data(), product_.data());
    blas::mirror_upper(side_, product_.data());
    std::swap(result, product_);
  }

  const QuinticPlan& plan_;
  int64_t rows_, columns_, side_, multiplications_;
  std::vector<Real> x_;                    // (rows, columns)
  std::vector<Real> r_, z_, q_, product_;  // (side, side)
};

template <typename Real> Real largest_entry(const Real* x, int64_t size) {
  Real largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

template <typename Real>
void run_range(const at::Tensor& batch, const QuinticPlan& plan, int64_t begin, int64_t end, at::Tensor& result) {
  const int64_t rows = batch.size(1), columns = batch.size(2), size = rows * columns;
  MatrixIteration<Real> iteration(plan, rows, columns);
  const Real* input = batch.data_ptr<Real>();
  Real* output = result.data_ptr<Real>();
  for (int64_t i = begin; i < end; ++i) {
    const Real scale = largest_entry(input + i * size, size);
    if (scale == 0) {
      std::copy_n(input + i * size, size, output + i * size);  // zeros, or nothing but NaN
    } else {
      iteration.polar(input + i * size, scale, output + i * size);
    }
  }
}

}  // namespace

at::Tensor run_with_blas(const at::Tensor& batch, const QuinticPlan& plan) {
  at::Tensor result = at::empty_like(batch);
  blas::for_matrix_ranges(batch.size(0), [&](int64_t begin, int64_t end) {
    if (batch.scalar_type() == at::kDouble) {
      run_range<double>(batch, plan, begin, end, result);
    } else {
      run_range<float>(batch, plan, begin, end, result);
    }
  });
  return result;
}

at::Tensor run_with_aten(const at::Tensor& batch, const QuinticPlan& plan) {
  const bool tall = batch.size(1) > batch.size(2);
  at::Tensor x = batch / one_if_zero(largest_entry(batch, {1, 2}));
  if (tall) x = x.transpose(1, 2);
  at::Tensor r = at::bmm(x, x.transpose(1, 2)), q;
  const at::Tensor bound = plan.bound == SingularBound::kFrobenius ? r.diagonal(0, 1, 2).sum(1).sqrt_().view({-1, 1, 1})
                                                                   : at::linalg_vector_norm(r, 2, {1, 2}, true).sqrt_();
  const at::Tensor divisor = plan.safety * one_if_zero(bound);
  x = x / divisor;
  r = r / divisor.square();
  const std::size_t steps = plan.coefficients.size();
  for (std::size_t step = 0; step < steps; ++step) {
    const auto [a, b, c] = plan.coefficients[step];
    at::Tensor z = at::baddbmm(r, r, r, b, c);
    z.diagonal(0, 1, 2).add_(a);
    q = q.defined() ? at::bmm(q, z) : z;
    if (step + 1 == steps || plan.restart[step]) {
      x = at::bmm(q, x);
      q.reset();
      if (step + 1 < steps) r = at::bmm(x, x.transpose(1, 2));
    } else {
      r = at::bmm(at::bmm(z, r), z);
    }
  }
  return tall ? x.transpose(1, 2).contiguous() : x;
}

at::Tensor run_in_bfloat16(const at::Tensor& batch, const QuinticPlan& plan) {
  // On a CPU without oneDNN's bfloat16, as without AVX-512, ATen rounds partial sums too: in LibTorch 1.13 five of
  // Jordan's steps at 768 x 768 end 0.4 (rms) from those in float64 instead of 0.01. So CPUs multiply the bfloat16
  // values in float32.
  const bool widened = batch.is_cpu();
  const auto rounded = [widened](const at::Tensor& y) {
    const at::Tensor narrow = y.to(at::kBFloat16);
    return widened ? narrow.to(at::kFloat) : narrow;
  };
  const auto gram = [&](const at::Tensor& y) { return rounded(at::bmm(y, y.transpose(1, 2))); };

  const bool tall = batch.size(1) > batch.size(2);
  at::Tensor x = (batch / one_if_zero(largest_entry(batch, {1, 2}))).to(at::kFloat);
  if (tall) x = x.transpose(1, 2);
  const at::Tensor bound = plan.bound == SingularBound::kFrobenius
                               ? at::linalg_vector_norm(x, 2, {1, 2}, true)
                               : at::linalg_vector_norm(gram(rounded(x)).to(at::kFloat), 2, {1, 2}, true).sqrt_();
  x = rounded(x / (plan.safety * one_if_zero(bound)));
  for (const auto& [a, b, c] : plan.coefficients) {
    const at::Tensor r = gram(x);
    const at::Tensor z = rounded(at::baddbmm(r, r, r, b, c));
    x = rounded(at::baddbmm(x, z, x, a, 1));
  }
  return (tall ? x.transpose(1, 2) : x).to(batch.scalar_type()).contiguous();
}

QuinticIteration::QuinticIteration(QuinticOptions options) : options_(std::move(options)) {
  GLUON_CHECK(!options_.coefficients.empty(), "QuinticIteration: expected at least one row of coefficients, got none");
  GLUON_CHECK(options_.safety >= 1, "QuinticIteration: safety must be >= 1, got ", options_.safety);
  // An update multiplies rounding errors by a^2 (kMaxGain above), and these begin at 4e-3.
  GLUON_CHECK(options_.precision != Precision::kBFloat16 || options_.form != Form::kGram, "orthogonalizer '", name(),
              "': bfloat16 has the direct form only");
}

std::string QuinticIteration::name() const {
  std::string name;
  if (options_.precision == Precision::kFloat32) name = "float32:";
  if (options_.precision == Precision::kBFloat16) name = "bfloat16:";
  if (options_.form == Form::kDirect) name += "direct:";
  if (options_.form == Form::kGram) name += "gram:";
  return name + options_.name;
}

QuinticPlan QuinticIteration::plan(int64_t m, int64_t n) const {
  const auto& rows = options_.coefficients;
  const double aspect = static_cast<double>(std::max(m, n)) / static_cast<double>(std::min(m, n));
  const bool automatic = options_.form == Form::kAuto && options_.precision != Precision::kBFloat16;
  const bool gram = options_.form == Form::kGram || (automatic && aspect > kGramAspect);
  QuinticPlan plan{rows, std::vector<bool>(rows.size(), !gram), options_.bound, options_.safety};
  if (!gram) return plan;
  const double max_gain = rows.size() <= kRoughSteps ? kMaxRoughGain : kMaxGain;
  double gain = 1;
  for (std::size_t step = 0; step < rows.size(); ++step) {
    gain *= rows[step].a;
    if (gain <= max_gain) continue;
    plan.restart[step] = true;
    gain = 1;
  }
  return plan;
}

LmoForm QuinticIteration::polar_form() const {
  const bool free_choice = options_.precision == Precision::kFast && options_.form == Form::kAuto &&
                           options_.bound == SingularBound::kSchatten4;
  if (!free_choice) return {};
  return {.kind = LmoForm::Kind::kPolar, .coefficients = options_.coefficients, .safety = options_.safety};
}

at::Tensor QuinticIteration::compute_polar(const at::Tensor& batch) const {
  const QuinticPlan steps = plan(batch.size(1), batch.size(2));
  if (options_.precision == Precision::kBFloat16) return run_in_bfloat16(batch, steps);
  return batch.is_cpu() ? run_with_blas(batch, steps) : run_with_aten(batch, steps);
}

}  // namespace gluon
