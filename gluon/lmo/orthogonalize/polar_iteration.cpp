#include "gluon/lmo/orthogonalize/polar_iteration.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/lmo/orthogonalize/blas.h"
#include "gluon/lmo/safe_norm.h"

namespace gluon {
namespace {

using Form = PolarOptions::Form;
using Precision = PolarOptions::Precision;

// An update multiplies the rounding errors of R, some of them negative eigenvalues, by Z(0)^2: they reach
// eps gain^2, with gain = product of Z(0) since the last restart. In float32 against float64, for condition
// numbers 1e2..1e6 and rank 8 plus noise, gain <= 50 keeps the rms error below 1e-4 or at that of the direct
// form for up to 40 steps; without restarts 8 steps are off by 0.08 and 15 overflow. Up to five
// quintics end 0.1 from 1 by themselves, so there 500 will do: no restart at the usual coefficients, rms error below
// 5e-3.
// Steps of higher degree turn errors of R into larger ones of Z: with 20 their rms error is that of the direct form.
constexpr double kMaxGain = 50, kMaxRoughGain = 500, kMaxSteepGain = 20;
constexpr std::size_t kRoughSteps = 5;

// One thread's workspace for matrices of one shape, and the iteration on one of them.
template <typename Real> class MatrixIteration {
 public:
  MatrixIteration(const PolarPlan& plan, int64_t rows, int64_t columns)
      : plan_(plan), rows_(rows), columns_(columns), side_(std::min(rows, columns)) {
    const std::size_t square = side_ * side_;
    x_.resize(rows * columns);
    r_.resize(square);
    z_.resize(square);
    for (std::size_t step = 0; step < plan.steps.size(); ++step) {
      if (plan.steps[step].squares.size() > 1) product_.resize(square);
      if (plan.restart[step] || step + 1 == plan.steps.size()) continue;
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

    const double k = plan_.safety * singular_bound();
    const std::size_t steps = plan_.steps.size();
    bool fresh = true;  // Q = I
    for (std::size_t step = 0; step < steps; ++step) {
      form_multiplier(plan_.steps[step], step == 0 ? k : 1);
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

  // z = Z(r / bound^2) / bound: s -> s Z(s^2) for singular values that are divided by `bound` first.
  void form_multiplier(const PolarStep& step, double bound) {
    std::vector<ExpandedSquare> squares = expand(step);
    squares.front().square /= bound * bound * bound * bound;
    for (ExpandedSquare& square : squares) square.addend /= bound * bound;
    squares.back().square /= bound;
    squares.back().addend /= bound;
    squares.back().constant /= bound;
    for (std::size_t i = 0; i < squares.size(); ++i) {
      const auto [factor, addend, constant] = squares[i];
      if (i > 0) std::swap(z_, product_);
      const std::vector<Real>& w = i == 0 ? r_ : product_;
      if (addend != 0) z_ = r_;
      blas::add_square(side_, static_cast<Real>(factor), w.data(), static_cast<Real>(addend), z_.data());
      for (int64_t j = 0; j < side_; ++j) z_[j * side_ + j] += static_cast<Real>(constant);
      blas::mirror_upper(side_, z_.data());
    }
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

  const PolarPlan& plan_;
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
void run_range(const at::Tensor& batch, const PolarPlan& plan, int64_t begin, int64_t end, at::Tensor& result) {
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

// alpha A B + beta C. For small matrices LibTorch 1.13's baddbmm multiplies memory that nobody has written by a beta of
// 0, which gives NaN when it holds one.
at::Tensor multiply_add(double alpha, const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) {
  return beta == 0 ? at::bmm(a, b).mul_(alpha) : at::baddbmm(c, a, b, beta, alpha);
}

}  // namespace

at::Tensor run_with_blas(const at::Tensor& batch, const PolarPlan& plan) {
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

at::Tensor run_with_aten(const at::Tensor& batch, const PolarPlan& plan) {
  const bool tall = batch.size(1) > batch.size(2);
  at::Tensor x = batch / one_if_zero(largest_entry(batch, {1, 2}));
  if (tall) x = x.transpose(1, 2);
  at::Tensor r = at::bmm(x, x.transpose(1, 2)), q;
  const at::Tensor bound = plan.bound == SingularBound::kFrobenius ? r.diagonal(0, 1, 2).sum(1).sqrt_().view({-1, 1, 1})
                                                                   : at::linalg_vector_norm(r, 2, {1, 2}, true).sqrt_();
  const at::Tensor divisor = plan.safety * one_if_zero(bound);
  x = x / divisor;
  r = r / divisor.square();
  const std::size_t steps = plan.steps.size();
  for (std::size_t step = 0; step < steps; ++step) {
    at::Tensor z = r;
    for (const auto& [square, addend, constant] : expand(plan.steps[step])) {
      z = multiply_add(square, z, z, addend, r);
      z.diagonal(0, 1, 2).add_(constant);
    }
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

at::Tensor run_in_bfloat16(const at::Tensor& batch, const PolarPlan& plan) {
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
  for (const PolarStep& step : plan.steps) {
    const at::Tensor r = gram(x);
    at::Tensor w = r, z;
    double constant = 0;  // of the last square; it multiplies X unrounded
    for (const ExpandedSquare& square : expand(step)) {
      if (z.defined()) w = rounded(z + constant * at::eye(r.size(1), r.options()));
      z = rounded(multiply_add(square.square, w, w, square.addend, r));
      constant = square.constant;
    }
    x = rounded(multiply_add(1, z, x, constant, x));
  }
  return (tall ? x.transpose(1, 2) : x).to(batch.scalar_type()).contiguous();
}

PolarIteration::PolarIteration(PolarOptions options) : options_(std::move(options)) {
  GLUON_CHECK(!options_.steps.empty(), "PolarIteration: expected at least one step, got none");
  GLUON_CHECK(options_.safety >= 1, "PolarIteration: safety must be >= 1, got ", options_.safety);
  // An update multiplies rounding errors by Z(0)^2 (kMaxGain above), and these begin at 4e-3.
  GLUON_CHECK(options_.precision != Precision::kBFloat16 || options_.form != Form::kGram, "orthogonalizer '", name(),
              "': bfloat16 has the direct form only");
}

std::string PolarIteration::name() const {
  std::string name;
  if (options_.precision == Precision::kFloat32) name = "float32:";
  if (options_.precision == Precision::kBFloat16) name = "bfloat16:";
  if (options_.form == Form::kDirect) name += "direct:";
  if (options_.form == Form::kGram) name += "gram:";
  return name + options_.name;
}

PolarPlan PolarIteration::plan(int64_t m, int64_t n) const {
  const auto& steps = options_.steps;
  const double aspect = static_cast<double>(std::max(m, n)) / static_cast<double>(std::min(m, n));
  const bool automatic = options_.form == Form::kAuto && options_.precision != Precision::kBFloat16;
  const bool gram = options_.form == Form::kGram || (automatic && aspect > kGramAspect);
  PolarPlan plan{steps, std::vector<bool>(steps.size(), !gram), options_.bound, options_.safety};
  if (!gram) return plan;
  const bool steep =
      std::any_of(steps.begin(), steps.end(), [](const PolarStep& step) { return step.squares.size() > 1; });
  const double max_gain = steep ? kMaxSteepGain : steps.size() <= kRoughSteps ? kMaxRoughGain : kMaxGain;
  double gain = 1;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    gain *= steps[step].multiplier(0);
    if (gain <= max_gain) continue;
    plan.restart[step] = true;
    gain = 1;
  }
  return plan;
}

LmoForm PolarIteration::polar_form() const {
  const bool free_choice = options_.precision == Precision::kFast && options_.form == Form::kAuto &&
                           options_.bound == SingularBound::kSchatten4;
  if (!free_choice) return {};
  return {.kind = LmoForm::Kind::kPolar, .steps = options_.steps, .safety = options_.safety};
}

at::Tensor PolarIteration::compute_polar(const at::Tensor& batch) const {
  const PolarPlan steps = plan(batch.size(1), batch.size(2));
  if (options_.precision == Precision::kBFloat16) return run_in_bfloat16(batch, steps);
  return batch.is_cpu() ? run_with_blas(batch, steps) : run_with_aten(batch, steps);
}

}  // namespace gluon
