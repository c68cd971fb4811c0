#include "gluon/normalize/normalize.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <vector>

#include "tests/expect_error.h"

namespace gluon {
namespace {

at::Tensor random_stack(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), type);
}

at::Tensor zero_state(const Normalize& normalize, const at::Tensor& stack) {
  return at::zeros({stack.size(0), stack.size(1), normalize.state_cols(stack.size(2))}, stack.options());
}

at::Tensor lengths(const at::Tensor& stack) { return stack.to(at::kDouble).flatten(1).norm(2, {1}); }

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  EXPECT_TRUE(actual.to(at::kDouble).allclose(expected.to(at::kDouble), tolerance, tolerance * 1e-3))
      << actual << "\nexpected\n"
      << expected;
}

at::Tensor matrix(const std::vector<double>& entries, int64_t rows) {
  return at::tensor(entries, at::kDouble).view({1, rows, -1});
}

// As an optimizer's step.
at::Tensor headings_of(const Normalize& normalize, const at::Tensor& direction, const at::Tensor& second, double unit) {
  normalize.fold(direction, second, unit);
  return normalize.heading(direction, second, unit);
}

TEST(Normalize, WithoutMemoryRowsGetOneLengthAndEntriesOneSize) {
  const at::Tensor direction = matrix({3, 4, 0, 1}, 2);  // of length sqrt(26)
  at::Tensor rows = at::zeros({1, 2, 1}, at::kDouble), entries = at::zeros({1, 2, 2}, at::kDouble);
  expect_near(headings_of(Normalize::normuon(0), direction, rows, 1), std::sqrt(13) * matrix({0.6, 0.8, 0, 1}, 2),
              1e-14);
  expect_near(rows, matrix({12.5, 0.5}, 2), 1e-14);
  expect_near(headings_of(Normalize::adamuon(0), direction, entries, 1), std::sqrt(26. / 3) * matrix({1, 1, 0, 1}, 2),
              1e-14);
  expect_near(entries, matrix({9, 16, 0, 1}, 2), 1e-14);
}

TEST(Normalize, TwoStepsByHand) {
  for (const Normalize& normalize : {Normalize::normuon(0.5), Normalize::adamuon(0.5)}) {
    at::Tensor second = at::zeros({1, 2, 1}, at::kDouble);
    expect_near(headings_of(normalize, matrix({1, 2}, 2), second, 1), std::sqrt(2.5) * matrix({1, 1}, 2), 1e-14);
    expect_near(second, matrix({0.5, 2}, 2), 1e-14);
    const at::Tensor second_step = headings_of(normalize, matrix({3, 4}, 2), second, 1);
    expect_near(second, matrix({4.75, 9}, 2), 1e-14);
    const double a = 3 / std::sqrt(4.75), b = 4. / 3;
    expect_near(second_step, 5 / std::hypot(a, b) * matrix({a, b}, 2), 1e-14);
  }
  // With eps = 1 in units of 2: O = (0.5, 1), v = (0.125, 0.5).
  at::Tensor second = at::zeros({1, 2, 1}, at::kDouble);
  const double a = 0.5 / (std::sqrt(0.125) + 1), b = 1 / (std::sqrt(0.5) + 1);
  expect_near(headings_of(Normalize::normuon(0.5, 1), matrix({1, 2}, 2), second, 2),
              std::sqrt(5) / std::hypot(a, b) * matrix({a, b}, 2), 1e-14);
}

// The papers' formulas entry by entry: NorMuon's algorithm 1 and AdaMuon's with its bias correction, which changes
// nothing, and the length of O restored.
struct Reference {
  bool by_rows;
  double beta2;
  std::vector<double> v{};
  int step = 0;

  at::Tensor operator()(const at::Tensor& o) {
    const int64_t m = o.size(0), n = o.size(1);
    v.resize(static_cast<std::size_t>(by_rows ? m : m * n), 0);
    ++step;
    at::Tensor found = at::empty_like(o);
    const auto in = o.accessor<double, 2>();
    auto out = found.accessor<double, 2>();
    double before = 0, after = 0;
    for (int64_t i = 0; i < m; ++i) {
      double mean = 0;
      for (int64_t j = 0; j < n; ++j) mean += in[i][j] * in[i][j] / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) {
        double& own = v[static_cast<std::size_t>(by_rows ? i : i * n + j)];
        if (!by_rows || j == 0) own = beta2 * own + (1 - beta2) * (by_rows ? mean : in[i][j] * in[i][j]);
        out[i][j] = in[i][j] / std::sqrt(own / (by_rows ? 1 : 1 - std::pow(beta2, step)));
        before += in[i][j] * in[i][j];
        after += out[i][j] * out[i][j];
      }
    }
    return found * std::sqrt(before / after);
  }
};

TEST(Normalize, IsThePapersFormulaOverManySteps) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const bool by_rows : {true, false}) {
      const Normalize normalize = by_rows ? Normalize::normuon(0.95) : Normalize::adamuon(0.9);
      std::vector<Reference> references(3, {by_rows, by_rows ? 0.95 : 0.9});
      const at::Tensor scales = random_stack({1, 7, 5}, 99).exp();  // rows and entries of different sizes
      at::Tensor second;
      for (uint64_t step = 0; step < 20; ++step) {
        const at::Tensor directions = (random_stack({3, 7, 5}, step) * scales).to(type);
        if (step == 0) second = zero_state(normalize, directions);
        const at::Tensor headings = headings_of(normalize, directions, second, 0.3);
        for (int64_t i = 0; i < 3; ++i) {
          expect_near(headings[i], references[static_cast<std::size_t>(i)](directions[i].to(at::kDouble)),
                      type == at::kFloat ? 2e-5 : 1e-12);
        }
      }
    }
  }
}

const Normalize kAll[] = {Normalize::normuon(0.95),        Normalize::adamuon(0.95), Normalize::normuon(0.5, 1e-10),
                          Normalize::adamuon(0.999, 1e-8), Normalize::normuon(0),    Normalize::adamuon(0)};

TEST(Normalize, KeepsTheLengthTheSignsAndItsArgument) {
  for (const Normalize& normalize : kAll) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{6, 6}, {12, 3}, {3, 12}, {1, 9}, {9, 1}, {1, 1}}) {
      for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
        at::Tensor second;
        for (uint64_t step = 0; step < 5; ++step) {
          const at::Tensor direction = random_stack({2, rows, cols}, step, type), copy = direction.clone();
          if (step == 0) second = zero_state(normalize, direction);
          const at::Tensor heading = headings_of(normalize, direction, second, 1);
          EXPECT_TRUE(direction.equal(copy));
          EXPECT_TRUE(heading.sign().equal(direction.sign())) << normalize.name();
          EXPECT_EQ(heading.scalar_type(), type);
          expect_near(lengths(heading), lengths(direction), type == at::kFloat ? 1e-6 : 1e-13);
        }
      }
    }
  }
}

TEST(Normalize, ZerosStayZeroAndDoNotTouchOthers) {
  for (const Normalize& normalize : kAll) {
    at::Tensor direction = random_stack({3, 4, 6}, 1, at::kFloat);
    direction[0].zero_();
    direction[1][2].zero_();
    at::Tensor second = zero_state(normalize, direction);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor heading = headings_of(normalize, direction, second, 1);
      EXPECT_TRUE(heading.isfinite().all().item<bool>()) << normalize.name();
      EXPECT_TRUE(heading.sign().equal(direction.sign())) << normalize.name();
    }
    // A zero direction forgets like any other.
    const at::Tensor before = second.clone();
    const at::Tensor none = headings_of(normalize, at::zeros_like(direction), second, 1);
    EXPECT_FALSE(none.any().item<bool>());
    EXPECT_TRUE(second.le(before).all().item<bool>());
  }
}

TEST(Normalize, TheUnitCarriesTheScaleOfTheNorm) {
  for (const Normalize& normalize : kAll) {
    at::Tensor plain, tiny, huge;
    for (uint64_t step = 0; step < 10; ++step) {
      const at::Tensor direction = random_stack({2, 5, 7}, step, at::kFloat);
      if (step == 0) plain = zero_state(normalize, direction), tiny = plain.clone(), huge = plain.clone();
      const at::Tensor expected = headings_of(normalize, direction, plain, 1);
      expect_near(headings_of(normalize, direction * 1e-30, tiny, 1e-30) * 1e30, expected, 1e-5);
      expect_near(headings_of(normalize, direction * 1e30, huge, 1e30) * 1e-30, expected, 1e-5);
    }
    expect_near(tiny, plain, 1e-5);
    expect_near(huge, plain, 1e-5);
  }
}

TEST(Normalize, BitsDoNotDependOnTheBatch) {
  for (const Normalize& normalize : kAll) {
    at::Tensor whole, alone;
    for (uint64_t step = 0; step < 3; ++step) {
      const at::Tensor directions = random_stack({5, 7, 9}, step, at::kFloat);
      if (step == 0) whole = zero_state(normalize, directions), alone = whole.clone();
      const at::Tensor headings = headings_of(normalize, directions, whole, 0.7);
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_TRUE(headings_of(normalize, directions.narrow(0, i, 1), alone.narrow(0, i, 1), 0.7)
                        .equal(headings.narrow(0, i, 1)));
      }
    }
    EXPECT_TRUE(whole.equal(alone));
  }
}

TEST(Normalize, NoneIsTheDirectionItself) {
  const at::Tensor direction = random_stack({2, 3, 4}, 1);
  EXPECT_TRUE(Normalize().heading(direction, at::Tensor(), 1).is_same(direction));
}

TEST(Normalize, StateOfEntriesIsThatOfTheirRows) {
  const at::Tensor entries = matrix({1, 2, 6, 5, 5, 5}, 2);
  expect_near(Normalize::normuon(0.9).state_of(entries), matrix({3, 5}, 2), 1e-14);
  EXPECT_TRUE(Normalize::adamuon(0.9).state_of(entries).equal(entries));
  // To the bit where a row has one value.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor rows = random_stack({4, 3, 1}, 5, type).square();
    EXPECT_TRUE(Normalize::normuon(0.9).state_of(rows.expand({4, 3, 7})).equal(rows));
  }
}

TEST(Normalize, NamesParseBack) {
  for (const char* name : {"none", "normuon(0.95)", "adamuon(0.999)", "normuon(0.9,1e-10)", "adamuon(0,1e-08)"}) {
    EXPECT_EQ(Normalize(name).name(), name);
  }
  EXPECT_EQ(Normalize(std::string("normuon(0.95, 0)")).name(), "normuon(0.95)");
  EXPECT_TRUE(Normalize("none").is_none());
}

TEST(Normalize, BadInputIsNamed) {
  for (const char* name : {"rows(0.9)", "normuon", "normuon()", "adamuon(0.9,1,2)", "none(0)", "0.95"}) {
    EXPECT_ANY_THROW(Normalize{name}) << name;
  }
  EXPECT_INPUT_ERROR((void)Normalize("rows(0.9)"),
                     "normalize: unknown name 'rows(0.9)'; allowed are none, normuon(BETA2[,EPS]), "
                     "adamuon(BETA2[,EPS])");
  EXPECT_INPUT_ERROR((void)Normalize("normuon(x)"), "normalize: expected a number, got 'x'");
  EXPECT_INPUT_ERROR((void)Normalize::normuon(1), "Normalize: beta2 must be in [0, 1), got 1");
  EXPECT_INPUT_ERROR((void)Normalize::adamuon(-0.5), "Normalize: beta2 must be in [0, 1), got -0.5");
  EXPECT_INPUT_ERROR((void)Normalize::adamuon(0.5, -1), "Normalize: eps must be in [0, 1e+30], got -1");
  EXPECT_INPUT_ERROR((void)Normalize::normuon(0.5, 1e31), "Normalize: eps must be in [0, 1e+30], got 1e+31");
}

}  // namespace
}  // namespace gluon
