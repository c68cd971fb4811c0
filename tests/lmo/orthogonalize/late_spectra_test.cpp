// Spectra of real momenta late in training, while the radii go to 0 (benchmarks/record_spectra.py): small, steep, and
// the ones on which half precision has the most to lose.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/kernels/stored_shift.h"
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
  at::Tensor x = stored(g * (length / g.to(at::kDouble).norm(2, {1, 2}, true)).to(at::kFloat)), bound;
  for (const PolarStep& step : form.steps) {
    const bool first = !bound.defined();
    const double shift = kernels::stored_shift(step, first);
    const at::Tensor r = at::matmul(x, x.transpose(1, 2)), kept = stored(r + shift * identity);
    bound = first ? form.safety * r.norm(2, {1, 2}, true).sqrt() : at::ones({});
    at::Tensor w = kept, scale = bound.pow(4);
    for (const auto& [square, addend, constant] : expand(step, shift)) {
      const at::Tensor product = square * at::matmul(w, w) / scale + constant * identity;
      w = stored(addend == 0 ? product : product + addend * kept / bound.pow(2));
      scale = at::ones({});
    }
    x = stored(at::matmul(w, x) / bound);
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

// The same polynomials in float64, apart from rounding.
TEST(LateSpectra, Float16FollowsItsPolynomials) {
  const at::Tensor g = momenta(96).slice(0, 0, 100);
  for (const char* name : {"polar_express:5", "polar_squares:8", "polar_squares:9"}) {
    const OrthogonalizerPtr iteration = make_orthogonalizer(name);
    const at::Tensor expected = iteration->polar(g.to(at::kDouble));
    const at::Tensor error = in_float16(g, iteration->polar_form(), 8).to(at::kDouble) - expected;
    EXPECT_LT(error.norm(2, {1, 2}).max().item<double>() / 8, 0.03) << name;
  }
}

}  // namespace
}  // namespace gluon
