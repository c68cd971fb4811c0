// Spectra of real momenta late in training, while the radii go to 0 (benchmarks/record_spectra.py): small, steep, and
// the ones on which half precision has the most to lose.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/kernels/half_plan.h"
#include "gluon/lmo/orthogonalize/polar_iteration.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

// (1008, 64), descending.
at::Tensor singular_values() {
  return read_safetensors(GLUON_LATE_SPECTRA).tensors.at("singular_values").to(at::kDouble);
}

// Matrices (count, 64, n) with the recorded singular values and random singular vectors.
at::Tensor momenta(int64_t n) {
  at::manual_seed(7);
  const at::Tensor values = singular_values();
  const int64_t count = values.size(0), k = values.size(1);
  const auto orthonormal = [&](int64_t rows) {
    return std::get<0>(at::linalg_qr(at::randn({count, rows, k}, at::kDouble)));
  };
  return at::matmul(orthonormal(k) * values.unsqueeze(1), orthonormal(n).transpose(1, 2)).to(at::kFloat);
}

double largest_singular_value(const at::Tensor& batch) {
  const at::Tensor x = batch.to(at::kDouble);
  return std::sqrt(at::linalg_eigvalsh(at::matmul(x, x.transpose(1, 2))).max().item<double>());
}

// Rounded to float16, as the kernels store every matrix; their products accumulate in float32.
at::Tensor stored(const at::Tensor& x) { return x.to(at::kHalf).to(at::kFloat); }

// What gluon/kernels/cuda/orthogonalize.cu computes for wide matrices (b, k, n), product by product. `length` is the
// Frobenius norm of the input, which may differ from the intended one by a factor of 10.
at::Tensor in_float16(const at::Tensor& g, const LmoForm& form, double length) {
  const at::Tensor identity = at::eye(g.size(1));
  const std::size_t steps = form.steps.size();
  const bool updates = kernels::updates_last(form.steps, g.size(1), g.size(2));
  const at::Tensor one = at::ones({});
  at::Tensor x = stored(g * (length / g.to(at::kDouble).norm(2, {1, 2}, true)).to(at::kFloat));
  at::Tensor kept, divisor, waiting;  // X is still to be divided by `divisor`
  for (std::size_t i = 0; i < steps; ++i) {
    const double shift = kernels::stored_shift(form.steps, i, updates);
    if (!waiting.defined()) {
      const at::Tensor r = at::matmul(x, x.transpose(1, 2));
      kept = stored(r + shift * identity);
      divisor = i == 0 ? form.safety * r.norm(2, {1, 2}, true).sqrt() : one;
    }
    const at::Tensor bound = i == 0 ? divisor : one;  // of what R is made of
    at::Tensor w = kept, scale = bound.pow(4);
    for (const auto& [square, addend, constant] : expand(form.steps[i], shift)) {
      const at::Tensor product = square * at::matmul(w, w) / scale + constant * identity;
      w = stored(addend == 0 ? product : product + addend * kept / bound.pow(2));
      scale = one;
    }
    if (updates && i + 2 == steps) {
      const at::Tensor r = at::matmul(stored(at::matmul(w, kept) / bound.pow(2)), w);
      const double next_shift = kernels::stored_shift(form.steps, i + 1, updates);
      kept = stored(r.tril() + r.tril(-1).transpose(1, 2) + next_shift * identity);  // one triangle is computed
      waiting = w;
    } else {
      if (waiting.defined()) w = stored(at::matmul(w, waiting));
      x = stored(at::matmul(w, x) / divisor);
    }
  }
  return x;
}

TEST(LateSpectra, ThereAreAThousandAndTheyAreSteep) {
  const at::Tensor values = singular_values();
  EXPECT_GE(values.size(0), 1000);
  // Most of a matrix lies below a tenth of its largest singular value.
  const at::Tensor middle = values.select(1, values.size(1) / 2) / values.select(1, 0);
  EXPECT_LT(middle.median().item<double>(), 0.1);
}

void expect_in_the_ball_and_downhill(const at::Tensor& x, const at::Tensor& g) {
  ASSERT_TRUE(x.isfinite().all().item<bool>());
  EXPECT_LT(largest_singular_value(x), 1.25);
  EXPECT_GT((g * x).sum(at::kDouble).item<double>() / singular_values().sum().item<double>(), 0.8);
}

TEST(LateSpectra, EveryOrthogonalizerStaysInTheBallAndDownhill) {
  const at::Tensor g = momenta(96);
  for (const char* name : {"svd", "newton_schulz:5", "polar_express:4", "polar_express:5", "polar_express:8",
                           "gram:polar_express:5", "polar_squares:8", "polar_squares:9", "gram:polar_squares:9",
                           "bfloat16:newton_schulz:5", "bfloat16:polar_express:5"}) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(join(name, " in ", dtype));
      expect_in_the_ball_and_downhill(make_orthogonalizer(name)->polar(g.to(dtype)), g);
    }
  }
}

TEST(LateSpectra, KernelsInFloat16StayInTheBallAndDownhill) {
  struct Case {
    const char* name;
    double factor;  // of the intended Frobenius norm
  };
  for (const int64_t n : {64, 96}) {
    const at::Tensor g = momenta(n);
    for (const auto& [name, factor] :
         {Case{"polar_express:4", 1}, Case{"polar_express:5", 0.1}, Case{"polar_express:5", 10},
          Case{"polar_express:8", 1}, Case{"polar_squares:8", 0.1}, Case{"polar_squares:8", 10},
          Case{"polar_squares:9", 1}}) {
      SCOPED_TRACE(join(name, ", 64 x ", n, ", Frobenius norm ", factor, " of the intended one"));
      const LmoForm form = make_orthogonalizer(name)->polar_form();
      expect_in_the_ball_and_downhill(in_float16(g, form, factor * std::sqrt(64)), g);
    }
  }
}

// The same polynomials in float64, apart from rounding; an updated R (96 columns) is farther off than X X^T (64), but
// not from the polar factor.
TEST(LateSpectra, Float16FollowsItsPolynomials) {
  for (const auto& [n, most] : {std::pair(64, 0.03), std::pair(96, 0.06)}) {
    const at::Tensor g = momenta(n).slice(0, 0, 100), exact = make_orthogonalizer("svd")->polar(g.to(at::kDouble));
    for (const char* name : {"polar_express:5", "polar_squares:8", "polar_squares:9"}) {
      SCOPED_TRACE(join(name, ", 64 x ", n));
      const OrthogonalizerPtr iteration = make_orthogonalizer(name);
      const at::Tensor expected = iteration->polar(g.to(at::kDouble));
      const at::Tensor got = in_float16(g, iteration->polar_form(), 8).to(at::kDouble);
      EXPECT_LT((got - expected).norm(2, {1, 2}).max().item<double>() / 8, most);
      EXPECT_LT((got - exact).norm().item<double>(), 1.05 * (expected - exact).norm().item<double>());
    }
  }
}

}  // namespace
}  // namespace gluon
