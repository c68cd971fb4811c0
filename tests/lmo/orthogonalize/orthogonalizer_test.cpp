#include "gluon/lmo/orthogonalize/orthogonalizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <vector>

#include "gluon/core/check.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

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

// A product of small matrices with an addend of 0 times something may read memory that nobody has written.
TEST_P(EveryOrthogonalizer, ReadsNoMemoryBeforeItIsWritten) {
  const at::Tensor g = at::randn({1, 6, 15});
  for (int i = 0; i < 20; ++i) {
    std::vector<at::Tensor> freed;
    for (const int64_t columns : {6, 15}) {
      for (int j = 0; j < 30; ++j) freed.push_back(at::full({1, 6, columns}, std::nan("")));
    }
    freed.clear();
    ASSERT_FALSE(polar(g).isnan().any().item<bool>());
  }
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
      for (const double scale : {1e-37, 1e-30, 1e30, 1e36}) {
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

// Momenta of layers that hardly learn, or learn one thing: the direction stays in the ball and downhill.
TEST_P(EveryOrthogonalizer, DegenerateMatricesStayBounded) {
  for (const auto& [m, n] : kShapes) {
    const at::Tensor column = at::randn({1, m, 1}, at::kDouble), row = at::randn({1, 1, n}, at::kDouble);
    at::Tensor entry = at::zeros({1, m, n}, at::kDouble), twins = at::randn({1, m, n}, at::kDouble);
    entry[0][m - 1][n / 2] = -3;
    twins.select(1, m - 1).copy_(twins.select(1, 0));
    // Rows of lengths from 1 to 1e-12.
    const at::Tensor falling =
        at::randn({1, m, n}, at::kDouble) * at::logspace(0, -12, m, 10.0, at::kDouble).view({m, 1});
    for (const at::Tensor& g : {column * row, entry, twins, falling}) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
        for (const double scale : {1.0, 1e-4, 1e3}) {
          const at::Tensor rounded = (g * scale).to(dtype), x = polar(rounded).to(at::kDouble);
          SCOPED_TRACE(join(m, " x ", n, " times ", scale, " in ", dtype));
          ASSERT_TRUE(x.isfinite().all().item<bool>());
          EXPECT_LT(at::linalg_svdvals(x).max().item<double>(), 1.25);
          EXPECT_GT((rounded.to(at::kDouble) * x).sum().item<double>(), 0);
        }
      }
    }
  }
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
                                           "bfloat16:polar_express:5", "bfloat16:direct:polar_express:4:0.01",
                                           "polar_squares:8", "polar_squares:9", "gram:polar_squares:8",
                                           "float32:polar_squares:9", "bfloat16:polar_squares:8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Orthogonalizer, ShortNamesTakeTheDefaults) {
  for (const auto& [given, name] : {std::pair{"newton_schulz", "newton_schulz:5"},
                                    {"polar_express", "polar_express:5"},
                                    {"polar_squares", "polar_squares:9"},
                                    {"polar_express:7", "polar_express:7"},
                                    {"polar_express:4:0.005", "polar_express:4"},
                                    {"polar_express:5:0.001", "polar_express:5"},
                                    {"polar_express:8:0.0001", "polar_express:8"},
                                    {"polar_express:8:0.001", "polar_express:8:0.001"},
                                    {"gram:polar_express:6:1e-4", "gram:polar_express:6:1e-04"},
                                    {"direct:newton_schulz:3", "direct:newton_schulz:3"},
                                    {"bfloat16:newton_schulz", "bfloat16:newton_schulz:5"}}) {
    EXPECT_EQ(make_orthogonalizer(given)->name(), name);
  }
}

TEST(Orthogonalizer, UnknownNamesListWhatIsAllowed) {
  for (const std::string name :
       {"", "qr", "svd:5", "gram:svd", "gram", "direct:", "gram:gram:newton_schulz", "newton_schulz:5:1",
        "polar_express:5:0.1:2", "Newton_Schulz", "float32", "float32:svd", "bfloat16", "bfloat16:", "bfloat16:svd",
        "bfloat16:float32:newton_schulz", "gram:bfloat16:newton_schulz"}) {
    EXPECT_INPUT_ERROR(make_orthogonalizer(name),
                       "unknown orthogonalizer '" + name +
                           "'; allowed: svd, newton_schulz[:STEPS], polar_express[:STEPS[:LOWER]], "
                           "polar_squares[:8|:9], and the last three after gram:, direct:, float32: or bfloat16:");
  }
}

TEST(Orthogonalizer, BadNumbersAreRejected) {
  for (const auto& [name, message] :
       {std::pair<std::string, std::string>{"newton_schulz:five", "STEPS: expected a whole number, got 'five'"},
        {"newton_schulz:", "STEPS: expected a whole number, got ''"},
        {"polar_express:5.5", "STEPS: expected a whole number, got '5.5'"},
        {"polar_squares:8.5", "SQUARES: expected a whole number, got '8.5'"},
        {"gram:polar_express:5:x", "LOWER: expected a number, got 'x'"},
        {"newton_schulz:0", "STEPS must be in 1..100, got 0"},
        {"newton_schulz:101", "STEPS must be in 1..100, got 101"}}) {
    EXPECT_INPUT_ERROR(make_orthogonalizer(name), "orthogonalizer '" + name + "': " + message);
  }
  EXPECT_NO_THROW(make_orthogonalizer("newton_schulz:100"));
  EXPECT_INPUT_ERROR(make_orthogonalizer("polar_express:5:2"), "polar_express: lower must be in (0, 1), got 2");
  EXPECT_INPUT_ERROR(make_orthogonalizer("polar_squares:10"), "polar_squares: squares must be 8 or 9, got 10");
  EXPECT_INPUT_ERROR(make_orthogonalizer("bfloat16:gram:polar_express"),
                     "orthogonalizer 'bfloat16:gram:polar_express:5': bfloat16 has the direct form only");
}

TEST(Orthogonalizer, BadInputTensorsAreRejected) {
  const auto polar = [](const at::Tensor& batch) { return make_orthogonalizer("svd")->polar(batch); };
  EXPECT_INPUT_ERROR(polar(at::zeros({16, 8, 3, 3})), "Orthogonalizer: expected (b, m, n), got [16, 8, 3, 3]");
  EXPECT_INPUT_ERROR(polar(at::zeros({8, 3})), "Orthogonalizer: expected (b, m, n), got [8, 3]");
  for (const auto& [type, name] : {std::pair{at::kLong, "Long"}, {at::kComplexFloat, "ComplexFloat"}}) {
    EXPECT_INPUT_ERROR(polar(at::zeros({1, 8, 3}, type)),
                       std::string("Orthogonalizer: expected float64, float32, float16 or bfloat16, got ") + name);
  }
}

TEST(Svd, PolarFactorOfAKnownDecomposition) {
  at::manual_seed(3);
  const auto expect_found = [](int64_t m, int64_t n, const at::Tensor& sigma, double tolerance) {
    const at::Tensor u = std::get<0>(at::linalg_qr(at::randn({1, m, sigma.size(0)}, sigma.options())));
    const at::Tensor v = std::get<0>(at::linalg_qr(at::randn({1, n, sigma.size(0)}, sigma.options())));
    const at::Tensor found = make_orthogonalizer("svd")->polar(at::bmm(u * sigma, v.transpose(1, 2)));
    EXPECT_LT((found - at::bmm(u, v.transpose(1, 2))).abs().max().item<double>(), tolerance) << m << " x " << n;
  };
  for (const auto& [m, n] : kShapes) expect_found(m, n, at::rand({std::min(m, n)}, at::kDouble) + 0.01, 1e-12);
  // The other 27 directions are rounding.
  for (const auto dtype : {at::kFloat, at::kDouble}) expect_found(30, 40, at::tensor({5.0, 1.0, 0.1}).to(dtype), 2e-5);
}

TEST(Svd, SmallButRealDirectionsAreKept) {
  const at::Tensor polar = make_orthogonalizer("svd")->polar(at::diag(at::tensor({1.0f, 1e-5f})).unsqueeze(0));
  EXPECT_TRUE(polar[0].allclose(at::eye(2), 0, 1e-6));
}

}  // namespace
}  // namespace gluon
