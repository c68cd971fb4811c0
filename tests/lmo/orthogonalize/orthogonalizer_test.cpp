#include "gluon/lmo/orthogonalize/orthogonalizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <string>
#include <vector>

#include "gluon/core/check.h"

namespace gluon {
namespace {

const std::string kAllowed =
    "; allowed: svd, newton_schulz[:STEPS], polar_express[:STEPS[:LOWER]], and the last two after gram:, "
    "direct:, float32: or bfloat16:";

std::string error_of_name(const std::string& name) {
  try {
    make_orthogonalizer(name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_input(const at::Tensor& batch) {
  try {
    make_orthogonalizer("svd")->polar(batch);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// Properties of every orthogonalizer.
class EveryOrthogonalizer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { at::manual_seed(11); }

  at::Tensor polar(const at::Tensor& batch) const { return orthogonalizer_->polar(batch); }

  static double distance(const at::Tensor& x, const at::Tensor& y) {
    return (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>();
  }

  OrthogonalizerPtr orthogonalizer_ = make_orthogonalizer(GetParam());
};

constexpr int64_t kShapes[][2] = {{12, 12}, {8, 30}, {30, 8}, {1, 9}, {9, 1}, {1, 1}};

TEST_P(EveryOrthogonalizer, NameRoundTrips) {
  const std::string name = orthogonalizer_->name();
  EXPECT_EQ(make_orthogonalizer(name)->name(), name);
  EXPECT_EQ(name.rfind(GetParam(), 0), 0u) << name;
  const at::Tensor g = at::randn({1, 6, 15});
  EXPECT_TRUE(at::equal(make_orthogonalizer(name)->polar(g), polar(g)));
}

TEST_P(EveryOrthogonalizer, PointsAlongItsInput) {
  // <G, polar(G)> is near the nuclear norm, and the singular values are near 1.
  for (const auto& [m, n] : kShapes) {
    const at::Tensor g = at::randn({1, m, n}, at::kDouble), x = polar(g);
    const double nuclear = at::linalg_svdvals(g).sum().item<double>();
    EXPECT_NEAR((g * x).sum().item<double>() / nuclear, 1, 0.35) << m << " x " << n;
    EXPECT_LT(at::linalg_svdvals(x).max().item<double>(), 1.25) << m << " x " << n;
  }
}

TEST_P(EveryOrthogonalizer, ScaleDoesNotMatter) {
  const bool bfloat16 = std::string(GetParam()).rfind("bfloat16:", 0) == 0;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto& [m, n] : kShapes) {
      const at::Tensor g = at::randn({2, m, n}, dtype), expected = polar(g);
      for (const double scale : {1e-30, 1e30}) {
        // The scaling itself rounds the entries; ill-conditioned input makes that visible beyond 1e-6, and
        // bfloat16 may round the other way.
        const double rounding = dtype == at::kFloat ? 2e-4 : 1e-12;
        EXPECT_LT(distance(polar(g * scale), expected), bfloat16 ? 0.1 : rounding)
            << m << " x " << n << " times " << scale;
      }
      EXPECT_TRUE(at::equal(polar(at::ldexp(g, at::tensor(-100))), expected)) << "power of two";
      EXPECT_TRUE(at::equal(polar(at::ldexp(g, at::tensor(100))), expected)) << "power of two";
    }
  }
}

TEST_P(EveryOrthogonalizer, SubnormalEntriesAreNotZero) {
  const at::Tensor g = at::full({1, 3, 4}, std::numeric_limits<float>::denorm_min());
  EXPECT_NEAR(polar(g).norm().item<float>(), 1, 0.35);
}

TEST_P(EveryOrthogonalizer, ZeroMatricesInABatchStayZero) {
  for (const auto& [m, n] : kShapes) {
    at::Tensor g = at::randn({3, m, n});
    g[1].zero_();
    const at::Tensor x = polar(g);
    EXPECT_TRUE(at::equal(x[1], at::zeros({m, n}))) << m << " x " << n;
    EXPECT_TRUE(at::equal(x[0], polar(g.slice(0, 0, 1))[0])) << m << " x " << n;
    EXPECT_TRUE(at::equal(x[2], polar(g.slice(0, 2, 3))[0])) << m << " x " << n;
  }
  EXPECT_TRUE(at::equal(polar(at::zeros({2, 4, 4})), at::zeros({2, 4, 4})));
}

TEST_P(EveryOrthogonalizer, InputIsNotModified) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    const at::Tensor g = at::randn({2, 6, 14}).to(dtype), before = g.clone();
    polar(g);
    EXPECT_TRUE(at::equal(g, before));
  }
}

TEST_P(EveryOrthogonalizer, ResultDoesNotDependOnTheMemoryLayout) {
  const at::Tensor g = at::randn({2, 14, 6}).transpose(1, 2);
  const at::Tensor x = polar(g);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_TRUE(at::equal(x, polar(g.contiguous())));
}

TEST_P(EveryOrthogonalizer, HalfPrecisionKeepsItsType) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor g = at::randn({2, 6, 14}).to(dtype), x = polar(g);
    EXPECT_EQ(x.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(x, polar(g.to(at::kFloat)).to(dtype)));
  }
}

TEST_P(EveryOrthogonalizer, EmptyGivesEmpty) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 3, 4}, {2, 0, 4}, {2, 3, 0}}) {
    EXPECT_EQ(polar(at::empty(shape)).sizes().vec(), shape);
  }
}

TEST_P(EveryOrthogonalizer, NoGradientIsRecorded) {
  EXPECT_FALSE(polar(at::randn({1, 3, 5}).set_requires_grad(true)).requires_grad());
}

INSTANTIATE_TEST_SUITE_P(, EveryOrthogonalizer,
                         ::testing::Values("svd", "newton_schulz:5", "direct:newton_schulz:5", "gram:newton_schulz:5",
                                           "polar_express:5", "polar_express:4", "polar_express:4:0.01",
                                           "gram:polar_express:8", "direct:polar_express:8", "float32:polar_express:4",
                                           "float32:gram:newton_schulz:5", "bfloat16:newton_schulz:5",
                                           "bfloat16:polar_express:5", "bfloat16:direct:polar_express:4:0.01"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Orthogonalizer, ShortNamesTakeTheDefaults) {
  EXPECT_EQ(make_orthogonalizer("newton_schulz")->name(), "newton_schulz:5");
  EXPECT_EQ(make_orthogonalizer("polar_express")->name(), "polar_express:4");
  EXPECT_EQ(make_orthogonalizer("polar_express:7")->name(), "polar_express:7");
  EXPECT_EQ(make_orthogonalizer("polar_express:4:0.005")->name(), "polar_express:4");
  EXPECT_EQ(make_orthogonalizer("polar_express:5:0.001")->name(), "polar_express:5");
  EXPECT_EQ(make_orthogonalizer("polar_express:8:0.0001")->name(), "polar_express:8");
  EXPECT_EQ(make_orthogonalizer("polar_express:8:0.001")->name(), "polar_express:8:0.001");
  EXPECT_EQ(make_orthogonalizer("gram:polar_express:6:1e-4")->name(), "gram:polar_express:6:1e-04");
  EXPECT_EQ(make_orthogonalizer("direct:newton_schulz:3")->name(), "direct:newton_schulz:3");
  EXPECT_EQ(make_orthogonalizer("bfloat16:newton_schulz")->name(), "bfloat16:newton_schulz:5");
}

TEST(Orthogonalizer, UnknownNamesListWhatIsAllowed) {
  for (const std::string name :
       {"", "qr", "svd:5", "gram:svd", "gram", "direct:", "gram:gram:newton_schulz", "newton_schulz:5:1",
        "polar_express:5:0.1:2", "Newton_Schulz", "float32", "float32:svd", "bfloat16", "bfloat16:", "bfloat16:svd",
        "bfloat16:float32:newton_schulz", "gram:bfloat16:newton_schulz"}) {
    EXPECT_EQ(error_of_name(name), "unknown orthogonalizer '" + name + "'" + kAllowed);
  }
}

TEST(Orthogonalizer, BadNumbersAreRejected) {
  EXPECT_EQ(error_of_name("newton_schulz:five"),
            "orthogonalizer 'newton_schulz:five': STEPS: expected a whole number, got 'five'");
  EXPECT_EQ(error_of_name("newton_schulz:"), "orthogonalizer 'newton_schulz:': STEPS: expected a whole number, got ''");
  EXPECT_EQ(error_of_name("polar_express:5.5"),
            "orthogonalizer 'polar_express:5.5': STEPS: expected a whole number, got '5.5'");
  EXPECT_EQ(error_of_name("gram:polar_express:5:x"),
            "orthogonalizer 'gram:polar_express:5:x': LOWER: expected a number, got 'x'");
  EXPECT_EQ(error_of_name("newton_schulz:0"), "orthogonalizer 'newton_schulz:0': STEPS must be in 1..100, got 0");
  EXPECT_EQ(error_of_name("newton_schulz:101"), "orthogonalizer 'newton_schulz:101': STEPS must be in 1..100, got 101");
  EXPECT_EQ(error_of_name("newton_schulz:100"), "no error");
  EXPECT_EQ(error_of_name("polar_express:5:2"), "polar_express: lower must be in (0, 1), got 2");
}

TEST(Orthogonalizer, BFloat16RejectsTheGramForm) {
  EXPECT_EQ(error_of_name("bfloat16:gram:polar_express"),
            "orthogonalizer 'bfloat16:gram:polar_express:4': bfloat16 has the direct form only");
}

TEST(Orthogonalizer, BadInputTensorsAreRejected) {
  EXPECT_EQ(error_of_input(at::zeros({16, 8, 3, 3})), "Orthogonalizer: expected (b, m, n), got [16, 8, 3, 3]");
  EXPECT_EQ(error_of_input(at::zeros({8, 3})), "Orthogonalizer: expected (b, m, n), got [8, 3]");
  EXPECT_EQ(error_of_input(at::zeros({1, 8, 3}, at::kLong)),
            "Orthogonalizer: expected float64, float32, float16 or bfloat16, got Long");
  EXPECT_EQ(error_of_input(at::zeros({1, 8, 3}, at::kComplexFloat)),
            "Orthogonalizer: expected float64, float32, float16 or bfloat16, got ComplexFloat");
}

}  // namespace
}  // namespace gluon
