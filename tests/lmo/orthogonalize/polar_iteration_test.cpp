#include "gluon/lmo/orthogonalize/polar_iteration.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/expect_error.h"

namespace gluon {
namespace {

using Form = PolarOptions::Form;
using Precision = PolarOptions::Precision;

constexpr double kSafety = 1.01;
constexpr int64_t kShapes[][2] = {{100, 100}, {60, 200}, {200, 60}};

// (1, m, n) in float64 with the given singular values.
at::Tensor with_singular_values(int64_t m, int64_t n, const at::Tensor& sigma) {
  const int64_t k = std::min(m, n);
  const at::Tensor u = std::get<0>(at::linalg_qr(at::randn({m, k}, at::kDouble)));
  const at::Tensor v = std::get<0>(at::linalg_qr(at::randn({n, k}, at::kDouble)));
  return at::matmul(u * sigma, v.t()).unsqueeze(0);
}

at::Tensor with_condition(int64_t m, int64_t n, double condition) {
  return with_singular_values(m, n, at::logspace(0, -std::log10(condition), std::min(m, n), 10.0, at::kDouble));
}

PolarIteration polar_express(int steps, Form form, double lower = 1e-3) {
  return PolarIteration({.name = "polar_express",
                         .steps = quintic_steps(polar_express_coefficients({.steps = steps, .lower = lower})),
                         .bound = SingularBound::kSchatten4,
                         .safety = kSafety,
                         .form = form});
}

PolarIteration polar_squares(int squares, Form form) {
  return PolarIteration({.name = join("polar_squares:", squares),
                         .steps = polar_squares_steps(squares),
                         .bound = SingularBound::kSchatten4,
                         .safety = kSquaresSafety,
                         .form = form});
}

PolarIteration jordan(int steps, Form form) {
  return PolarIteration({.name = "newton_schulz", .steps = quintic_steps(jordan_coefficients(steps)), .form = form});
}

// Root mean square of the error per singular direction.
double error(const at::Tensor& x, const at::Tensor& exact) {
  const double directions = static_cast<double>(std::min(x.size(1), x.size(2)));
  return (x.to(at::kDouble) - exact).norm().item<double>() / std::sqrt(directions);
}

class PolarIterationTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

TEST_F(PolarIterationTest, EightStepsOrthogonalizeAtConditionThousand) {
  for (const auto& [m, n] : kShapes) {
    const at::Tensor g = with_condition(m, n, 1e3).to(at::kFloat);
    // The hardest spectrum for this condition number: all values large but one.
    at::Tensor hardest = at::ones({std::min(m, n)}, at::kDouble);
    hardest[0] = 1e-3;
    for (const at::Tensor& input : {g, with_singular_values(m, n, hardest).to(at::kFloat)}) {
      for (const char* name : {"polar_express:8", "direct:polar_express:8", "gram:polar_express:8"}) {
        const at::Tensor sigma = at::linalg_svdvals(make_orthogonalizer(name)->polar(input).to(at::kDouble));
        EXPECT_GT(sigma.min().item<double>(), 0.999) << name << " " << m << " x " << n;
        EXPECT_LT(sigma.max().item<double>(), 1.001) << name << " " << m << " x " << n;
      }
    }
  }
}

TEST_F(PolarIterationTest, SingularValuesFollowTheScalarPolynomial) {
  // The whole iteration against its definition on the singular values, with the singular vectors kept.
  for (const auto& [m, n] : kShapes) {
    const at::Tensor g = with_condition(m, n, 100);
    const auto [u, sigma, vh] = at::linalg_svd(g, false);
    const auto expect_agreement = [&, u = u, sigma = sigma, vh = vh](const PolarIteration& iteration,
                                                                     auto polynomials) {
      const at::Tensor expected = at::bmm(u * polynomials(sigma / (kSafety * sigma.norm(4))).unsqueeze(1), vh);
      EXPECT_LT(error(iteration.polar(g), expected), 3e-12) << iteration.name();
      EXPECT_LT(error(iteration.polar(g.to(at::kFloat)), expected), 1e-3) << iteration.name();
      const PolarPlan plan = iteration.plan(m, n);
      EXPECT_LT(error(run_with_aten(g, plan), expected), 1e-12) << iteration.name();
    };
    for (const Form form : {Form::kDirect, Form::kGram}) {
      for (const int steps : {1, 2, 5, 6, 9}) {
        expect_agreement(polar_express(steps, form), [steps](at::Tensor s) {
          for (const auto& [a, b, c] : polar_express_coefficients({.steps = steps, .safety = kSafety})) {
            s = a * s + b * s.pow(3) + c * s.pow(5);
          }
          return s;
        });
      }
      for (const int squares : {8, 9}) {
        expect_agreement(polar_squares(squares, form), [squares](at::Tensor s) {
          for (const auto& [shift, factors, linear] : polar_squares_steps(squares)) {
            at::Tensor w = s * s + shift;
            for (const auto& [factor, offset] : factors) w = factor * w * w + offset;
            s = s * (w + linear * s * s);
          }
          return s;
        });
      }
    }
  }
}

TEST_F(PolarIterationTest, JordanDividesByTheFrobeniusNormAsThePublicMuon) {
  for (const auto& [m, n] : kShapes) {
    const at::Tensor g = at::randn({1, m, n}, at::kDouble);
    at::Tensor x = (m > n ? g.transpose(1, 2) : g) / g.norm();
    for (int step = 0; step < 5; ++step) {
      const at::Tensor a = x.bmm(x.transpose(1, 2));
      x = 3.4445 * x + (-4.7750 * a + 2.0315 * a.bmm(a)).bmm(x);
    }
    if (m > n) x = x.transpose(1, 2);
    for (const Form form : {Form::kDirect, Form::kGram}) EXPECT_LT(error(jordan(5, form).polar(g), x), 1e-12);
  }
}

TEST_F(PolarIterationTest, TheDefaultIsABetterOracleThanThePublicMuon) {
  // <g, z> / (|g|* |z|) is 1 for the exact LMO z. The spectra are similar to those of gradients.
  const at::Tensor index = at::arange(1, 201, at::kDouble);
  const at::Tensor noise = at::linspace(1, 0.02, 160, at::kDouble);
  const at::Tensor signal = at::logspace(0, -2, 40, 10.0, at::kDouble);
  for (const at::Tensor& sigma :
       {at::linalg_svdvals(at::randn({200, 200}, at::kDouble)), at::linalg_svdvals(at::randn({200, 800}, at::kDouble)),
        at::cat({signal, 0.1 * noise}), at::cat({signal, 0.01 * noise}), 1 / index, index.pow(-1.5)}) {
    const at::Tensor g = with_singular_values(200, 200, sigma);
    const auto quality = [&](const char* name) {
      const at::Tensor z = make_orthogonalizer(name)->polar(g);
      const double reached = (g * z).sum().item<double>() / at::linalg_svdvals(z).max().item<double>();
      return reached / sigma.sum().item<double>();
    };
    EXPECT_GT(quality("polar_express"), quality("newton_schulz") + 0.05);
    EXPECT_GT(quality("polar_express"), 0.8);
    EXPECT_GT(quality("polar_express:8"), quality("polar_express"));
  }
}

TEST_F(PolarIterationTest, BlasIsAsAccurateAsAten) {
  for (const auto& [m, n] : kShapes) {
    for (const double condition : {10.0, 1e3, 1e6}) {
      const at::Tensor g = with_condition(m, n, condition).to(at::kFloat);
      for (const int steps : {5, 8}) {
        for (const Form form : {Form::kDirect, Form::kGram}) {
          const PolarPlan plan = polar_express(steps, form).plan(m, n);
          const at::Tensor exact = run_with_aten(g.to(at::kDouble), polar_express(steps, Form::kDirect).plan(m, n));
          EXPECT_LE(error(run_with_blas(g, plan), exact), 3 * error(run_with_aten(g, plan), exact) + 1e-7)
              << m << " x " << n << ", condition " << condition << ", " << steps << " steps";
        }
      }
    }
  }
}

TEST_F(PolarIterationTest, GramIsAsAccurateAsDirectFromSixSteps) {
  const int64_t m = 60, n = 240;
  std::vector<at::Tensor> inputs = {with_condition(m, n, 1e2), with_condition(m, n, 1e4), with_condition(m, n, 1e6),
                                    at::ones({1, m, n}, at::kDouble)};
  for (const double noise : {1e-2, 1e-4, 0.0}) {
    inputs.push_back(at::randn({1, m, 4}, at::kDouble).bmm(at::randn({1, 4, n}, at::kDouble)) +
                     noise * at::randn({1, m, n}, at::kDouble));
  }
  for (const at::Tensor& input : inputs) {
    const at::Tensor g = input.to(at::kFloat);
    for (const int steps : {6, 8, 10, 15}) {
      const at::Tensor exact = polar_express(steps, Form::kDirect).polar(g.to(at::kDouble));
      const double direct = error(polar_express(steps, Form::kDirect).polar(g), exact);
      EXPECT_LE(error(polar_express(steps, Form::kGram).polar(g), exact), 3 * direct + 3e-4) << steps << " steps";
    }
    const at::Tensor exact = polar_express(5, Form::kDirect).polar(g.to(at::kDouble));
    // Five steps end 0.1 from 1 by themselves and never restart.
    EXPECT_LE(error(polar_express(5, Form::kGram).polar(g), exact), 5e-3);
    for (const int squares : {8, 9}) {
      const at::Tensor same = polar_squares(squares, Form::kDirect).polar(g.to(at::kDouble));
      const double direct_error = error(polar_squares(squares, Form::kDirect).polar(g), same);
      EXPECT_LE(error(polar_squares(squares, Form::kGram).polar(g), same), 3 * direct_error + 5e-4)
          << squares << " squares";
    }
  }
}

TEST_F(PolarIterationTest, ManyStepsStayBounded) {
  const at::Tensor low_rank = at::randn({1, 40, 2}).bmm(at::randn({1, 2, 160}));
  for (const Form form : {Form::kDirect, Form::kGram}) {
    for (const double lower : {1e-3, 1e-8}) {
      const at::Tensor x = polar_express(40, form, lower).polar(low_rank);
      EXPECT_LT(at::linalg_svdvals(x).max().item<double>(), 1.5);
    }
    EXPECT_LT(at::linalg_svdvals(jordan(40, form).polar(low_rank)).max().item<double>(), 1.5);
  }
}

TEST_F(PolarIterationTest, RankDeficientInputKeepsItsRank) {
  const at::Tensor sigma = at::cat({at::ones({5}, at::kDouble), at::zeros({25}, at::kDouble)});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{30, 90}, {90, 30}, {30, 30}}) {
    const at::Tensor g = with_singular_values(m, n, sigma);
    for (const Form form : {Form::kDirect, Form::kGram}) {
      EXPECT_LT(error(polar_express(8, form).polar(g), g), 1e-6);  // g is its own polar factor
    }
  }
}

TEST_F(PolarIterationTest, BatchesEqualOneByOne) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const auto& [m, n] : kShapes) {
    const at::Tensor g = at::randn({5, m, n});
    for (const Form form : {Form::kDirect, Form::kGram}) {
      const PolarIteration iteration = polar_express(6, form);
      const at::Tensor x = iteration.polar(g);
      for (int64_t i = 0; i < g.size(0); ++i) {
        const at::Tensor alone = iteration.polar(g.slice(0, i, i + 1))[0];
        EXPECT_LT((x[i] - alone).abs().max().item<double>(), 1e-5) << "matrix " << i;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_F(PolarIterationTest, NaNStaysInItsMatrix) {
  at::Tensor g = at::randn({3, 20, 70});
  g[1][3][4] = std::numeric_limits<float>::quiet_NaN();
  for (const Form form : {Form::kDirect, Form::kGram}) {
    const at::Tensor x = polar_express(6, form).polar(g);
    EXPECT_TRUE(x[0].isfinite().all().item<bool>());
    EXPECT_TRUE(x[1].isnan().any().item<bool>());
    EXPECT_TRUE(x[2].isfinite().all().item<bool>());
  }
}

TEST_F(PolarIterationTest, AtenPathMapsZeroToZero) {
  at::Tensor g = at::randn({3, 12, 7});
  g[1].zero_();
  const at::Tensor x = run_with_aten(g, polar_express(6, Form::kGram).plan(12, 7));
  EXPECT_TRUE(at::equal(x[1], at::zeros({12, 7})));
  EXPECT_LT(error(x, run_with_blas(g.to(at::kDouble), polar_express(6, Form::kGram).plan(12, 7))), 1e-4);
}

// Public Muon, line by line, on bfloat16 tensors; products are rounded once (ATen's own are not on every CPU).
at::Tensor public_muon(const at::Tensor& g) {
  const auto product = [](const at::Tensor& a, const at::Tensor& b) {
    return at::bmm(a.to(at::kFloat), b.to(at::kFloat)).to(at::kBFloat16);
  };
  const bool tall = g.size(1) > g.size(2);
  at::Tensor x = g.to(at::kBFloat16);
  if (tall) x = x.transpose(1, 2);
  x = x / (at::linalg_vector_norm(x, 2, {1, 2}, true) + 1e-7);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor a = product(x, x.transpose(1, 2));
    const at::Tensor b = -4.7750 * a + 2.0315 * product(a, a);
    x = 3.4445 * x + product(b, x);
  }
  return tall ? x.transpose(1, 2) : x;
}

TEST_F(PolarIterationTest, BFloat16AgreesWithThePublicMuon) {
  // The largest distance over 60 matrices of each shape is 0.061. Public Muon rounds more often (its input before the
  // norm, every sum and its terms) and has at least three times our noise.
  const OrthogonalizerPtr ours = make_orthogonalizer("bfloat16:newton_schulz:5");
  for (const auto& [m, n] : kShapes) {
    for (int64_t i = 0; i < 3; ++i) {
      const at::Tensor g = at::randn({1, m, n}), x = ours->polar(g), theirs = public_muon(g);
      const at::Tensor exact = jordan(5, Form::kDirect).polar(g.to(at::kDouble));
      EXPECT_LT(error(x, exact), 0.02) << m << " x " << n;
      EXPECT_LT(error(x, exact), error(theirs, exact)) << m << " x " << n;
      EXPECT_LT(error(x, theirs.to(at::kDouble)), 0.08) << m << " x " << n;
    }
  }
}

TEST_F(PolarIterationTest, BFloat16IsAsAccurateAsItsPolynomials) {
  for (const auto& [m, n] : kShapes) {
    for (const double scale : {1e-30, 1.0, 1e30}) {
      at::Tensor g = at::randn({4, m, n}) * scale;
      g[2].zero_();
      for (const auto& [name, limit] : {std::pair{"newton_schulz:5", 0.25}, {"polar_express:5", 0.15}}) {
        const OrthogonalizerPtr bfloat16 = make_orthogonalizer(std::string("bfloat16:") + name);
        const at::Tensor x = bfloat16->polar(g);
        EXPECT_EQ(x.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::equal(x, x.to(at::kBFloat16).to(at::kFloat)));
        EXPECT_TRUE(at::equal(x[2], at::zeros({m, n})));
        for (const int64_t i : {0, 1, 3}) {
          const at::Tensor one = g.slice(0, i, i + 1), polynomial = make_orthogonalizer(name)->polar(one);
          const at::Tensor exact = make_orthogonalizer("svd")->polar(one.to(at::kDouble));
          const at::Tensor ours = x.slice(0, i, i + 1);
          EXPECT_LT(error(ours, exact), limit) << name << " " << m << " x " << n << " times " << scale;
          EXPECT_NEAR(error(ours, exact), error(polynomial, exact), 0.02) << name << " " << m << " x " << n;
        }
      }
    }
  }
}

TEST_F(PolarIterationTest, BFloat16IsStableOnHardInput) {
  // Values outside float32's range, and many equal entries, whose squares a sum in bfloat16 would lose.
  for (const char* name : {"bfloat16:newton_schulz:5", "bfloat16:polar_express:5", "bfloat16:polar_express:10"}) {
    for (const at::Tensor& g : {at::full({1, 20, 900}, 1e300, at::kDouble), at::ones({1, 900, 1}, at::kDouble),
                                with_condition(40, 160, 1e6), at::full({1, 3, 2}, 1e-300, at::kDouble)}) {
      const at::Tensor x = make_orthogonalizer(name)->polar(g);
      EXPECT_EQ(x.scalar_type(), at::kDouble);
      const double largest = at::linalg_svdvals(x).max().item<double>();
      EXPECT_GT(largest, 0.65) << name;
      EXPECT_LT(largest, 1.25) << name;
    }
  }
}

TEST_F(PolarIterationTest, PlanRestartsFollowTheForm) {
  using Restarts = std::vector<bool>;
  const auto restarts = [](int steps, Form form, int64_t m, int64_t n) {
    Restarts restart = polar_express(steps, form).plan(m, n).restart;
    restart.pop_back();  // the last step multiplies in any case
    return restart;
  };
  EXPECT_EQ(restarts(5, Form::kDirect, 10, 90), Restarts({1, 1, 1, 1}));
  EXPECT_EQ(restarts(5, Form::kGram, 10, 10), Restarts({0, 0, 0, 0}));
  EXPECT_EQ(restarts(8, Form::kGram, 10, 90), Restarts({0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(polar_squares(8, Form::kGram).plan(10, 90).restart, Restarts({1, 0, 1}));
  for (const auto& [m, n] : {std::pair{10, 10}, {10, 12}, {8, 10}}) {
    EXPECT_EQ(restarts(5, Form::kAuto, m, n), restarts(5, Form::kDirect, m, n)) << m << " x " << n;
  }
  for (const auto& [m, n] : {std::pair{10, 13}, {10, 20}, {20, 10}}) {
    EXPECT_EQ(restarts(5, Form::kAuto, m, n), restarts(5, Form::kGram, m, n)) << m << " x " << n;
  }
  // The product of the Z(0) since the last restart may reach 500 up to five steps, 50 beyond that.
  for (const auto& [steps, largest] : {std::pair{5, 500.0}, {6, 50.0}}) {
    for (const double gain : {largest, largest + 0.5}) {
      std::vector<PolarStep> rows(static_cast<std::size_t>(steps), PolarStep{0, {{1, 1}}});
      rows[0].squares[0].offset = gain;
      const PolarIteration iteration({.steps = rows, .form = Form::kGram});
      EXPECT_EQ(iteration.plan(10, 90).restart.front(), gain > largest) << gain;
    }
  }
  const PolarIteration bfloat16({.steps = quintic_steps(jordan_coefficients(4)), .precision = Precision::kBFloat16});
  EXPECT_EQ(bfloat16.plan(10, 90).restart, Restarts(4, true));
}

TEST_F(PolarIterationTest, InvalidOptionsAreRejected) {
  EXPECT_INPUT_ERROR(PolarIteration({}), "PolarIteration: expected at least one step, got none");
  EXPECT_INPUT_ERROR(PolarIteration({.steps = {{0, {{1, 0}}}}, .safety = 0.5}),
                     "PolarIteration: safety must be >= 1, got 0.5");
}

}  // namespace
}  // namespace gluon
