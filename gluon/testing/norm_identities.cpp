#include "gluon/testing/norm_identities.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

#include "gluon/core/check.h"

namespace gluon {
namespace {

// Powers of two: a g is then exact, also in half precision, and lmo(a g) has no excuse to differ from lmo(g).
constexpr double kFactors[] = {1.0 / 4096, 0.5, 8, 4096};

at::Tensor largest_entry(const at::Tensor& x) { return x.abs().amax({1, 2}, /*keepdim=*/true); }

bool same_bits(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor a = x.cpu().contiguous(), b = y.cpu().contiguous();
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// |expected - actual| relative to the larger of both; NaN stays NaN and fails every comparison.
at::Tensor relative_error(const at::Tensor& expected, const at::Tensor& actual) {
  const at::Tensor error = (expected - actual).abs() / at::maximum(expected.abs(), actual.abs());
  return error.masked_fill(expected == actual, 0);
}

class IdentityCheck {
 public:
  IdentityCheck(const Norm& norm, const at::Tensor& g, const IdentityOptions& options)
      : norm_(norm), options_(options), g_(g.detach().clone()) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    const at::Tensor random = at::randn(g.sizes(), generator, at::kDouble).to(g.device());
    // As large as g itself, or the triangle inequalities would not see one of their terms.
    const at::Tensor size = largest_entry(g_.to(at::kDouble));
    y_ = (random * size.masked_fill(size == 0, 1)).to(g_.scalar_type());
  }

  std::vector<std::string> run() {
    check_calls();
    if (!violations_.empty()) return violations_;  // the rest relies on shapes and on an intact g
    lmo_ = norm_.lmo(g_);
    norm_of_g_ = norm(g_);
    dual_of_g_ = dual_norm(g_);
    check_oracle();
    check_zero();
    check_hoelder();
    check_homogeneity();
    check_triangle();
    check_matrix_by_matrix();
    check_strides();
    return violations_;
  }

 private:
  at::Tensor norm(const at::Tensor& x) const { return norm_.norm(x).to(at::kDouble); }
  at::Tensor dual_norm(const at::Tensor& x) const { return norm_.dual_norm(x).to(at::kDouble); }

  static at::Tensor inner(const at::Tensor& x, const at::Tensor& y) {
    return (x.to(at::kDouble) * y.to(at::kDouble)).sum({1, 2});
  }

  // Shapes, dtypes, and what a call does to its argument: each function gets a copy of its own to spoil.
  void check_calls() {
    const at::ScalarType value_type = g_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    check_call("norm(g)", &Norm::norm, {g_.size(0)}, value_type);
    check_call("dual_norm(g)", &Norm::dual_norm, {g_.size(0)}, value_type);
    check_call("lmo(g)", &Norm::lmo, g_.sizes(), g_.scalar_type());
  }

  void check_call(const std::string& call, at::Tensor (Norm::*function)(const at::Tensor&) const, at::IntArrayRef sizes,
                  at::ScalarType dtype) {
    const at::Tensor argument = g_.clone();
    const at::Tensor result = (norm_.*function)(argument);
    if (!same_bits(argument, g_)) {
      const at::Tensor change = (argument.to(at::kDouble) - g_.to(at::kDouble)).abs().max();
      report(call + " leaves g unchanged", "no bit to differ",
             join("entries changed by up to ", change.item<double>()));
    }
    if (result.is_alias_of(argument)) {
      report(call + " is a new tensor", "memory of its own", "the memory of g");
    }
    if (result.sizes() != sizes) report(call + " has the right shape", join(sizes), join(result.sizes()));
    if (result.scalar_type() != dtype) {
      report(call + " has the right dtype", join(dtype), join(result.scalar_type()));
    }
  }

  void check_oracle() {
    expect_equal("<g, lmo(g)> = -|g|*", -dual_of_g_, inner(g_, lmo_));
    const at::Tensor zero = largest_entry(g_).flatten() == 0;
    expect_equal("|lmo(g)| = 1, or 0 where g = 0", at::ones_like(dual_of_g_).masked_fill(zero, 0), norm(lmo_));
    for (const double a : kFactors) {
      expect_same(join("lmo(a g) = lmo(g) with a = ", a), lmo_, norm_.lmo(g_ * a));
    }
    expect_positive("0 < |g| < inf, or 0 where g = 0", norm_of_g_, zero);
    expect_positive("0 < |g|* < inf, or 0 where g = 0", dual_of_g_, zero);
  }

  void check_zero() {
    const at::Tensor zero = at::zeros_like(g_);
    expect_same("lmo(0) = 0", zero, norm_.lmo(zero));
    expect_equal("|0| = 0", at::zeros_like(norm_of_g_), norm(zero));
    expect_equal("|0|* = 0", at::zeros_like(dual_of_g_), dual_norm(zero));
  }

  void check_hoelder() {
    // The absolute value, since -x has the norm of x: a random sign would hide half of the mistakes.
    expect_at_most("|<g, x>| <= |g|* |x| for random x", dual_of_g_ * norm(y_), inner(g_, y_).abs());
    expect_at_most("|<x, g>| <= |x|* |g| for random x", dual_norm(y_) * norm_of_g_, inner(y_, g_).abs());
    // Extreme points of the ball see a dual norm that is too small where random points do not.
    const at::Tensor extreme = norm_.lmo(y_);
    expect_at_most("|<g, x>| <= |g|* |x| for x = lmo(y), random y", dual_of_g_ * norm(extreme),
                   inner(g_, extreme).abs());
    expect_equal("<g, x> = |g|* |x| for x = -lmo(g)", dual_of_g_ * norm(-lmo_), inner(g_, -lmo_));
  }

  void check_homogeneity() {
    for (const double size : kFactors) {
      for (const double a : {size, -size}) {
        expect_equal(join("|a g| = |a| |g| with a = ", a), size * norm_of_g_, norm(g_ * a));
        expect_equal(join("|a g|* = |a| |g|* with a = ", a), size * dual_of_g_, dual_norm(g_ * a));
      }
    }
  }

  void check_triangle() {
    expect_at_most("|g + y| <= |g| + |y| for random y", norm_of_g_ + norm(y_), norm(g_ + y_));
    expect_at_most("|g + y|* <= |g|* + |y|* for random y", dual_of_g_ + dual_norm(y_), dual_norm(g_ + y_));
    // Terms that share no entry add up without cancellation, and without rounding.
    const at::Tensor p = g_.masked_fill(y_ > 0, 0), q = g_.masked_fill(y_ <= 0, 0);
    expect_at_most("|p + q| <= |p| + |q| for g cut in two", norm(p) + norm(q), norm_of_g_);
    expect_at_most("|p + q|* <= |p|* + |q|* for g cut in two", dual_norm(p) + dual_norm(q), dual_of_g_);
  }

  void check_matrix_by_matrix() {
    std::vector<at::Tensor> norms, duals, lmos;
    for (const at::Tensor& matrix : g_.split(1)) {
      norms.push_back(norm(matrix));
      duals.push_back(dual_norm(matrix));
      lmos.push_back(norm_.lmo(matrix));
    }
    expect_equal("norm of a batch = norm of each matrix", at::cat(norms), norm_of_g_);
    expect_equal("dual_norm of a batch = dual_norm of each matrix", at::cat(duals), dual_of_g_);
    expect_same("lmo of a batch = lmo of each matrix", at::cat(lmos), lmo_);
  }

  void check_strides() {
    const at::Tensor column_major = g_.transpose(1, 2).contiguous().transpose(1, 2);
    expect_equal("norm of a column-major batch = norm of a row-major one", norm_of_g_, norm(column_major));
    expect_equal("dual_norm of a column-major batch = dual_norm of a row-major one", dual_of_g_,
                 dual_norm(column_major));
    expect_same("lmo of a column-major batch = lmo of a row-major one", lmo_, norm_.lmo(column_major));
  }

  // The arguments of these are float64 and have one value per matrix.
  void expect_equal(const std::string& identity, const at::Tensor& expected, const at::Tensor& actual) {
    require(identity, expected, actual, relative_error(expected, actual));
  }

  void expect_at_most(const std::string& identity, const at::Tensor& bound, const at::Tensor& actual) {
    require(identity, bound, actual, relative_error(bound, actual).masked_fill(actual <= bound, 0));
  }

  // Without it homogeneity would hold for a norm that is infinite, or zero, everywhere.
  void expect_positive(const std::string& identity, const at::Tensor& value, const at::Tensor& zero) {
    const at::Tensor valid = at::where(zero, value == 0, (value > 0).logical_and(value.isfinite()));
    if (valid.all().item<bool>()) return;
    const int64_t first = valid.logical_not().nonzero()[0].item<int64_t>();
    report(identity, zero[first].item<bool>() ? "0" : "a positive number",
           join(value[first].item<double>(), " for matrix ", first));
  }

  // Matrices: the entry with the largest difference stands for each, relative to the matrix's largest entry.
  void expect_same(const std::string& identity, const at::Tensor& expected, const at::Tensor& actual) {
    const at::Tensor e = expected.to(at::kDouble).flatten(1), a = actual.to(at::kDouble).flatten(1);
    const at::Tensor difference = (e - a).abs();
    const at::Tensor size = at::maximum(e.abs().amax(1), a.abs().amax(1));
    const at::Tensor worst = difference.argmax(1, /*keepdim=*/true);
    const at::Tensor largest = difference.gather(1, worst).flatten();
    require(identity, e.gather(1, worst).flatten(), a.gather(1, worst).flatten(),
            (largest / size).masked_fill(largest == 0, 0));
  }

  void require(const std::string& identity, const at::Tensor& expected, const at::Tensor& actual,
               const at::Tensor& error) {
    if ((error <= options_.tolerance).all().item<bool>()) return;
    const int64_t worst = error.masked_fill(error.isnan(), INFINITY).argmax().item<int64_t>();
    const auto value = [worst](const at::Tensor& x) { return x[worst].item<double>(); };
    report(
        identity, join(value(expected)),
        join(value(actual), " for matrix ", worst, ", relative error ", value(error), " above ", options_.tolerance));
  }

  void report(const std::string& identity, const std::string& expected, const std::string& actual) {
    violations_.push_back(join(norm_.name(), ": ", identity, ": expected ", expected, ", got ", actual));
  }

  const Norm& norm_;
  const IdentityOptions options_;
  at::Tensor g_;          // (b, m, n)
  at::Tensor y_;          // (b, m, n) random, as large as g
  at::Tensor lmo_;        // (b, m, n)
  at::Tensor norm_of_g_;  // (b) float64
  at::Tensor dual_of_g_;  // (b) float64
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> norm_identity_violations(const Norm& norm, const at::Tensor& g,
                                                  const IdentityOptions& options) {
  GLUON_CHECK(g.dim() == 3 && g.numel() > 0, "norm_identity_violations: expected a nonempty (b, m, n), got ",
              g.sizes());
  GLUON_CHECK(at::isFloatingType(g.scalar_type()), "norm_identity_violations: expected a floating point tensor, got ",
              g.scalar_type());
  GLUON_CHECK(g.isfinite().all().item<bool>(), "norm_identity_violations: expected finite entries, got NaN or Inf");
  return IdentityCheck(norm, g, options).run();
}

std::vector<NamedBatch> identity_inputs(at::ScalarType dtype) {
  GLUON_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16,
              "identity_inputs: expected float32, float64 or bfloat16, got ", dtype);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(20250515);
  const auto random = [&](int64_t b, int64_t m, int64_t n) {
    return at::randn({b, m, n}, generator, at::TensorOptions(at::kDouble));
  };
  at::Tensor some_zero = random(3, 5, 4);
  some_zero[1].zero_();
  at::Tensor zero_lines = random(2, 6, 5);
  zero_lines.select(1, 2).zero_();
  zero_lines.select(2, 0).zero_();
  at::Tensor one_large = random(2, 4, 5) * 1e-10;
  one_large.select(1, 1).select(1, 3).fill_(-1e10);

  std::vector<NamedBatch> inputs = {{"tall", random(3, 9, 4)},
                                    {"wide", random(3, 4, 9)},
                                    {"square", random(2, 6, 6)},
                                    {"1 x n", random(2, 1, 7)},
                                    {"n x 1", random(2, 7, 1)},
                                    {"1 x 1", random(3, 1, 1)},
                                    {"rank-deficient", random(2, 8, 2).matmul(random(2, 2, 6))},
                                    {"zero", at::zeros({2, 5, 3}, at::kDouble)},
                                    {"zero and nonzero", some_zero},
                                    {"zero rows and columns", zero_lines},
                                    {"tiny", random(2, 6, 4) * 1e-30},
                                    {"huge", random(2, 4, 6) * 1e30},
                                    {"one large entry", one_large}};
  for (NamedBatch& input : inputs) input.batch = input.batch.to(dtype);
  return inputs;
}

}  // namespace gluon
