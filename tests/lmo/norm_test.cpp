// Closed forms, names and errors; the identities every norm must satisfy are in tests/testing.

#include "gluon/lmo/norm.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>

#include <cmath>

#include "tests/expect_error.h"

namespace gluon {
namespace {

// (1, 2, 2): [[3, 4], [0, 0]]
at::Tensor sample() { return at::tensor({3.0, 4.0, 0.0, 0.0}, at::kDouble).view({1, 2, 2}); }

TEST(Norm, ClosedForms) {
  struct Case {
    const char* name;
    double norm, dual;
    std::vector<double> lmo;
  };
  for (const Case& c : std::vector<Case>{
           {"spectral(svd)", 5, 5, {-0.6, -0.8, 0, 0}},
           {"max_entry", 4, 7, {-1, -1, 0, 0}},
           {"euclidean", 5, 5, {-0.6, -0.8, 0, 0}},
           {"columns", 4, 7, {-1, -1, 0, 0}},
           {"rows", 5, 5, {-0.6, -0.8, 0, 0}},
           {"scaled(2,max_entry)", 8, 3.5, {-0.5, -0.5, 0, 0}},
           {"scaled(2,scaled(3,max_entry))", 24, 7.0 / 6, {-1.0 / 6, -1.0 / 6, 0, 0}},
       }) {
    const NormPtr norm = make_norm(c.name);
    EXPECT_NEAR(norm->norm(sample()).item<double>(), c.norm, 1e-12) << c.name;
    EXPECT_NEAR(norm->dual_norm(sample()).item<double>(), c.dual, 1e-12) << c.name;
    EXPECT_TRUE(norm->lmo(sample()).flatten().allclose(at::tensor(c.lmo, at::kDouble), 1e-12, 1e-12)) << c.name;
  }
}

TEST(Norm, LengthOfTheLmo) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{6, 6}, {12, 3}, {3, 12}, {1, 9}, {9, 1}, {1, 1}}) {
    const double rows = static_cast<double>(m), cols = static_cast<double>(n);
    for (const auto& [name, expected] : {std::pair{"spectral(svd)", std::sqrt(std::min(rows, cols))},
                                         {"spectral(newton_schulz:5)", std::sqrt(std::min(rows, cols))},
                                         {"max_entry", std::sqrt(rows * cols)},
                                         {"euclidean", 1.0},
                                         {"columns", std::sqrt(cols)},
                                         {"rows", std::sqrt(rows)},
                                         {"scaled(4,rows)", std::sqrt(rows) / 4}}) {
      EXPECT_NEAR(make_norm(name)->lmo_length(m, n), expected, 1e-12 * expected) << name << ' ' << m << ' ' << n;
    }
    for (std::string name : norm_names()) {
      if (name == "spectral") name = "spectral(svd)";
      const at::Tensor direction = make_norm(name)->lmo(at::randn({1, m, n}, at::kDouble));
      EXPECT_NEAR(direction.norm().item<double>(), make_norm(name)->lmo_length(m, n), 1e-9) << name;
    }
  }
}

// A norm of a user's own, without a closed form.
class Plain : public Norm {
 public:
  explicit Plain(NormPtr base) : base_(std::move(base)) {}
  std::string name() const override { return "plain"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return base_->norm(x); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return base_->dual_norm(g); }
  at::Tensor compute_lmo(const at::Tensor& g) const override { return base_->lmo(g); }

 private:
  NormPtr base_;
};

TEST(Norm, LengthOfTheLmoIsFoundForNormsOfOnesOwn) {
  const NormPtr base = make_norm("scaled(2,spectral(svd))");
  EXPECT_NEAR(Plain(base).lmo_length(7, 4), base->lmo_length(7, 4), 1e-9);
  EXPECT_EQ(Plain(base).lmo_length(7, 4), Plain(base).lmo_length(7, 4));
}

TEST(Norm, NamesParseBack) {
  std::vector<std::string> names = norm_names();
  names.insert(names.end(),
               {"spectral(svd)", "spectral(newton_schulz:5)", "scaled(0.5,spectral)", "scaled(0.1,scaled(3,rows))"});
  for (const std::string& name : names) EXPECT_EQ(make_norm(name)->name(), name);
  EXPECT_EQ(make_norm("scaled(n,max_entry)", {1, 3, 8, 1})->name(), "scaled(8,max_entry)");
  EXPECT_EQ(make_norm("spectral", {}, "svd")->name(), "spectral(svd)");
}

TEST(Norm, HalfPrecisionIsComputedInFloat) {
  const at::Tensor g = at::randn({2, 5, 3}).to(at::kBFloat16);
  const NormPtr norm = make_norm("rows");
  EXPECT_EQ(norm->lmo(g).scalar_type(), at::kBFloat16);
  EXPECT_EQ(norm->dual_norm(g).scalar_type(), at::kFloat);
  EXPECT_EQ(norm->norm(g).scalar_type(), at::kFloat);
  EXPECT_TRUE(norm->dual_norm(g).equal(norm->dual_norm(g.to(at::kFloat))));
}

TEST(Norm, EmptyMatricesHaveNormZero) {
  const at::Tensor empty = at::zeros({2, 0, 3});
  EXPECT_TRUE(make_norm("euclidean")->norm(empty).equal(at::zeros({2})));
  EXPECT_EQ(make_norm("euclidean")->lmo(empty).sizes(), empty.sizes());
}

TEST(Norm, FormsDescribeTheLmo) {
  using Kind = LmoForm::Kind;
  const LmoForm sign = make_norm("scaled(4,max_entry)")->lmo_form();
  EXPECT_EQ(sign.kind, Kind::kSign);
  EXPECT_EQ(sign.factor, 0.25);
  const LmoForm polar = make_norm("scaled(2,scaled(0.25,spectral(polar_express:5)))")->lmo_form();
  EXPECT_EQ(polar.kind, Kind::kPolar);
  EXPECT_EQ(polar.factor, 2);
  EXPECT_EQ(polar.steps.size(), 5);
  EXPECT_GT(polar.safety, 1);
  for (const char* name :
       {"rows", "columns", "euclidean", "spectral(svd)", "spectral(newton_schulz)", "spectral(float32:polar_express)",
        "spectral(gram:polar_express)", "spectral(bfloat16:polar_express)"}) {
    EXPECT_EQ(make_norm(name)->lmo_form().kind, Kind::kOther) << name;
  }
}

TEST(Norm, BadInput) {
  EXPECT_INPUT_ERROR(make_norm("rows")->lmo(at::randn({16, 8, 3, 3})), "rows: expected (b, m, n), got [16, 8, 3, 3]");
  EXPECT_INPUT_ERROR(make_norm("max_entry")->norm(at::ones({1, 2, 2}, at::kLong)),
                     "max_entry: expected a floating point tensor, got Long");
  EXPECT_INPUT_ERROR(make_norm("nuclear"),
                     "unknown name 'nuclear'; allowed are spectral(ORTHOGONALIZER), scaled(FACTOR,NORM), spectral,");
  EXPECT_INPUT_ERROR(make_norm("scaled(2)"), "unknown name 'scaled(2)'");
  EXPECT_INPUT_ERROR(make_norm("scaled(0,rows)"), "scaled: the factor must be > 0 and finite, got 0");
  EXPECT_INPUT_ERROR(make_norm("scaled(1/0,rows)"), "scaled: the factor must be > 0 and finite, got inf");
  for (const char* name : {"rows(2)", "scaled(2,rows,rows)", "spectral(svd,svd)", "row(1,2)", "nuclear(svd)"}) {
    EXPECT_INPUT_ERROR(make_norm(name), "unknown name '" + std::string(name) + "'");
  }
}

TEST(Norm, TheSpectralNormHasGradientsAndWorksInInferenceMode) {
  const at::Tensor x = at::randn({2, 4, 3}, at::kDouble).requires_grad_();
  const auto norm = make_norm("scaled(2,spectral)");
  norm->norm(x).sum().backward();
  EXPECT_NEAR(x.grad().square().sum().item<double>(), 8, 1e-9);  // 2 u v^T of each matrix
  x.mutable_grad().zero_();
  norm->dual_norm(x).sum().backward();
  EXPECT_NEAR(x.grad().square().sum().item<double>(), 2 * 3 / 4.0, 1e-9);  // U V^T / 2
  const c10::InferenceMode inference;
  EXPECT_TRUE(make_norm("spectral")->dual_norm(at::ones({3, 2, 2})).allclose(at::full({3}, 2.0)));
}

}  // namespace
}  // namespace gluon
