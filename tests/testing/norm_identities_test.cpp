#include "gluon/testing/norm_identities.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/expect_error.h"

namespace gluon {
namespace {

MatrixShape shape_of(const at::Tensor& batch) { return {.rows = batch.size(1), .cols = batch.size(2)}; }

void expect_identities(const std::string& name, at::ScalarType dtype, double tolerance) {
  for (const auto& [input, batch] : identity_inputs(dtype)) {
    const NormPtr norm = make_norm(name, shape_of(batch));
    for (const std::string& violation : norm_identity_violations(*norm, batch, {.tolerance = tolerance})) {
      ADD_FAILURE() << input << ", " << dtype << ": " << violation;
    }
  }
}

class IdentitiesOfEveryNorm : public ::testing::TestWithParam<std::string> {};

TEST_P(IdentitiesOfEveryNorm, HoldInFloat32) { expect_identities(GetParam(), at::kFloat, 1e-5); }
TEST_P(IdentitiesOfEveryNorm, HoldInFloat64) { expect_identities(GetParam(), at::kDouble, 1e-12); }

// The LMO's result is rounded to 8 bits, once.
TEST_P(IdentitiesOfEveryNorm, HoldInBFloat16) { expect_identities(GetParam(), at::kBFloat16, 1e-2); }

std::vector<std::string> exact_norms() {
  std::vector<std::string> names = norm_names();
  std::replace(names.begin(), names.end(), std::string("spectral"), std::string("spectral(svd)"));
  names.insert(names.end(), {"scaled(0.5,spectral(svd))", "scaled(3,rows)", "scaled(n,max_entry)",
                             "scaled(sqrt(n/m),spectral(svd))", "scaled(2,scaled(0.25,columns))"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(Norms, IdentitiesOfEveryNorm, ::testing::ValuesIn(exact_norms()));

// Eight steps bring singular values above 1e-3 to within 1e-3 of 1; smaller ones count little in <g, lmo(g)>.
TEST(NormIdentities, HoldToTheAccuracyOfPolarExpress) {
  expect_identities("spectral(polar_express:8)", at::kFloat, 1e-3);
  expect_identities("spectral(polar_express:8)", at::kDouble, 1e-3);
}

// ---- the checker finds every mistake ----

using Function = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor length(const at::Tensor& x) { return at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}); }

at::Tensor normalized(const at::Tensor& x) {
  const at::Tensor size = length(x).view({-1, 1, 1});
  return x / size.masked_fill(size == 0, 1);
}

// The Euclidean norm, in plain arithmetic, with one function replaced.
class AssembledNorm : public Norm {
 public:
  Function value = length;
  Function dual = length;
  Function oracle = [](const at::Tensor& g) { return normalized(g).neg(); };

  std::string name() const override { return "assembled"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return value(x); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return dual(g); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return oracle(g); }
};

AssembledNorm with(Function AssembledNorm::*part, Function function) {
  AssembledNorm norm;
  norm.*part = std::move(function);
  return norm;
}
AssembledNorm with_norm(Function function) { return with(&AssembledNorm::value, std::move(function)); }
AssembledNorm with_dual(Function function) { return with(&AssembledNorm::dual, std::move(function)); }
AssembledNorm with_lmo(Function function) { return with(&AssembledNorm::oracle, std::move(function)); }

// A norm whose call of `function` leaves a trace in the argument.
Function spoiling(Function function) {
  return [function](const at::Tensor& x) {
    const at::Tensor result = function(x).clone();
    at::Tensor(x).select(2, 0).neg_();  // what an in-place operation on a view does; 0 becomes -0
    return result;
  };
}

at::Tensor batch_named(const std::string& name, at::ScalarType dtype = at::kDouble) {
  for (const NamedBatch& input : identity_inputs(dtype)) {
    if (input.name == name) return input.batch;
  }
  throw std::invalid_argument("no identity input is called " + name);
}

// All sentences, each on a line.
std::string violations(const Norm& norm, const at::Tensor& batch, const IdentityOptions& options = {}) {
  std::string all;
  for (const std::string& violation : norm_identity_violations(norm, batch, options)) all += violation + "\n";
  return all;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Mistake {
  const char* label;
  AssembledNorm norm;
  const char* input;
  const char* identity;
};

std::vector<Mistake> mistakes() {
  const auto ascent = [](const at::Tensor& g) { return normalized(g); };
  const auto descent = [](const at::Tensor& g) { return normalized(g).neg(); };
  const auto floored = [](const at::Tensor& g) { return -g / (length(g).view({-1, 1, 1}) + 1e-8); };
  const auto unguarded = [](const at::Tensor& g) { return -g / length(g).view({-1, 1, 1}); };
  const auto moving = [](const at::Tensor& g) { return normalized(g.masked_fill(g == 0, 1)).neg(); };
  const auto by_batch = [](const at::Tensor& g) { return -g / g.norm(); };
  const auto strideless = [](const at::Tensor& g) {
    return normalized(g.as_strided(g.sizes(), {g.size(1) * g.size(2), g.size(2), 1})).neg();
  };
  const auto quasi = [](const at::Tensor& x) { return x.abs().sqrt().sum({1, 2}).square(); };
  const auto itself = [](const at::Tensor& g) { return g; };
  const auto signed_max = [](const at::Tensor& x) { return x.amax({1, 2}); };
  const auto squared = [](const at::Tensor& x) { return length(x).square(); };
  const auto plus_one = [](const at::Tensor& x) { return length(x) + 1; };
  const auto column = [](const at::Tensor& x) { return length(x).view({-1, 1}); };
  const auto negated = [](const at::Tensor& g) { return g.neg(); };
  const auto times = [](double a) { return [a](const at::Tensor& x) { return length(x) * a; }; };
  return {
      {"uphill", with_lmo(ascent), "tall", "<g, lmo(g)> = -|g|*"},
      {"unnormalised", with_lmo(negated), "wide", "|lmo(g)| = 1"},
      {"unnormalised", with_lmo(negated), "wide", "lmo(a g) = lmo(g)"},
      {"epsilon in the divisor", with_lmo(floored), "tiny", "lmo(a g) = lmo(g)"},
      {"0 / 0", with_lmo(unguarded), "tall", "lmo(0) = 0"},
      {"zero moves", with_lmo(moving), "square", "lmo(0) = 0"},
      {"zero matrix moves", with_lmo(moving), "zero and nonzero", "|lmo(g)| = 1, or 0 where g = 0"},
      {"the batch's length", with_lmo(by_batch), "tall", "lmo of a batch"},
      {"strides ignored", with_lmo(strideless), "tall", "lmo of a column-major"},
      {"result is the argument", with_lmo(itself), "tall", "lmo(g) is a new tensor"},
      {"lmo writes", with_lmo(spoiling(descent)), "tall", "lmo(g) leaves g unchanged"},
      {"norm writes", with_norm(spoiling(length)), "tall", "norm(g) leaves g unchanged"},
      {"dual norm writes", with_dual(spoiling(length)), "zero", "dual_norm(g) leaves g unchanged"},
      {"dual too large", with_dual(times(2)), "1 x n", "<g, lmo(g)> = -|g|*"},
      {"dual too small", with_dual(times(0.5)), "1 x 1", "<g, x> = |g|* |x| for x = -lmo(g)"},
      {"dual too small", with_dual(times(1e-3)), "square", "|<g, x>| <= |g|* |x| for random x"},
      {"dual too small", with_dual(times(1e-3)), "square", "|<g, x>| <= |g|* |x| for x = lmo(y)"},
      {"norm too small", with_norm(times(1e-3)), "square", "|<x, g>| <= |x|* |g|"},
      {"dual squared", with_dual(squared), "tall", "|a g|*"},
      {"norm squared", with_norm(squared), "tall", "|a g| ="},
      {"signed", with_norm(signed_max), "n x 1", "|a g| = |a| |g|"},
      {"quasi-norm", with_norm(quasi), "tall", "|p + q| <= |p| + |q|"},
      {"quasi-norm as dual", with_dual(quasi), "tall", "|p + q|* <= |p|* + |q|*"},
      {"negative", with_norm(times(-1)), "tall", "0 < |g| < inf"},
      {"negative", with_norm(times(-1)), "tall", "|g + y| <= |g| + |y|"},
      {"infinite", with_dual(times(std::numeric_limits<double>::infinity())), "tall", "0 < |g|* < inf"},
      {"not 0 at 0", with_norm(plus_one), "tall", "|0| = 0"},
      {"dual not 0 at 0", with_dual(plus_one), "zero", "|0|* = 0"},
      {"keeps dimensions", with_norm(column), "tall", "norm(g) has the right shape"},
      {"one value for all", with_dual([](const at::Tensor& x) { return x.norm(); }), "tall",
       "dual_norm(g) has the right shape"},
      {"transposed", with_lmo([](const at::Tensor& g) { return g.transpose(1, 2).clone(); }), "wide",
       "lmo(g) has the right shape"},
      {"float32", with_norm([](const at::Tensor& x) { return length(x).to(at::kFloat); }), "tall",
       "norm(g) has the right dtype"},
  };
}

TEST(NormIdentities, AssembledEuclideanNormIsRight) {
  for (const char* input : {"tall", "wide", "square", "1 x n", "n x 1", "1 x 1", "zero", "zero and nonzero"}) {
    EXPECT_EQ(violations(AssembledNorm(), batch_named(input)), "") << input;
  }
}

TEST(NormIdentities, EveryMistakeIsNamed) {
  for (const Mistake& mistake : mistakes()) {
    const std::string found = violations(mistake.norm, batch_named(mistake.input));
    EXPECT_TRUE(contains(found, mistake.identity)) << mistake.label << ": " << mistake.identity << "\n" << found;
  }
}

// Frobenius without scaling is right at 1 and wrong at 1e30, where its squares overflow in float32.
TEST(NormIdentities, OverflowIsFound) {
  for (const char* input : {"huge", "tiny"}) {
    EXPECT_TRUE(contains(violations(AssembledNorm(), batch_named(input, at::kFloat)), "0 < |g| < inf")) << input;
  }
}

TEST(NormIdentities, MessageHasNameIdentityValuesAndError) {
  const AssembledNorm norm = with_dual([](const at::Tensor& g) { return length(g) * 2; });
  const std::string found = violations(norm, at::full({1, 1, 1}, 3.0, at::kDouble));
  EXPECT_EQ(found.substr(0, found.find('\n')),
            "assembled: <g, lmo(g)> = -|g|*: expected -6, got -3 for matrix 0, relative error 0.5 above 1e-05");
}

TEST(NormIdentities, Tolerance) {
  const AssembledNorm norm = with_dual([](const at::Tensor& g) { return length(g) * 1.001; });
  EXPECT_NE(violations(norm, batch_named("tall"), {.tolerance = 1e-4}), "");
  EXPECT_EQ(violations(norm, batch_named("tall"), {.tolerance = 1e-2}), "");
}

TEST(NormIdentities, CallersBatchIsUnchangedByANormThatWrites) {
  const at::Tensor g = batch_named("tall"), before = g.clone();
  EXPECT_NE(violations(with_lmo(spoiling(normalized)), g), "");
  EXPECT_TRUE(at::equal(g, before));
}

TEST(NormIdentities, BadInput) {
  const auto check = [](const at::Tensor& g) { return norm_identity_violations(AssembledNorm(), g); };
  EXPECT_INPUT_ERROR(check(at::ones({2, 3})), "norm_identity_violations: expected a nonempty (b, m, n), got [2, 3]");
  EXPECT_INPUT_ERROR(check(at::ones({0, 2, 3})),
                     "norm_identity_violations: expected a nonempty (b, m, n), got [0, 2, 3]");
  EXPECT_INPUT_ERROR(check(at::ones({1, 2, 3}, at::kLong)),
                     "norm_identity_violations: expected a floating point tensor, got Long");
  EXPECT_INPUT_ERROR(check(at::full({1, 1, 1}, NAN)),
                     "norm_identity_violations: expected finite entries, got NaN or Inf");
  EXPECT_INPUT_ERROR(identity_inputs(at::kHalf), "identity_inputs: expected float32, float64 or bfloat16, got Half");
}

// ---- the inputs are what their names say ----

TEST(IdentityInputs, MatchTheirNames) {
  EXPECT_EQ(at::linalg_matrix_rank(batch_named("rank-deficient")).max().item<int64_t>(), 2);
  EXPECT_EQ(batch_named("zero").abs().max().item<double>(), 0);
  const at::Tensor sizes = length(batch_named("zero and nonzero"));
  EXPECT_TRUE((sizes == 0).any().item<bool>());
  EXPECT_TRUE((sizes > 0).any().item<bool>());
  const at::Tensor lines = batch_named("zero rows and columns");
  EXPECT_EQ((lines.abs().sum(2) == 0).sum().item<int64_t>(), 2);
  EXPECT_EQ((lines.abs().sum(1) == 0).sum().item<int64_t>(), 2);
  const double tiny = batch_named("tiny", at::kFloat).abs().max().item<double>();
  EXPECT_TRUE(tiny > 1e-31 && tiny < 1e-29) << tiny;
  const double huge = batch_named("huge", at::kFloat).abs().max().item<double>();
  EXPECT_TRUE(huge > 1e29 && huge < 1e31) << huge;
  EXPECT_EQ((batch_named("one large entry").abs() > 1).sum().item<int64_t>(), 2);
}

TEST(IdentityInputs, AreTheSameInEveryCall) {
  const auto first = identity_inputs(at::kFloat), second = identity_inputs(at::kFloat);
  ASSERT_EQ(first.size(), 13u);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].batch.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(first[i].batch, second[i].batch)) << first[i].name;
  }
}

}  // namespace
}  // namespace gluon
