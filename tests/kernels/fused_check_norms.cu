// Norms, dual norms and inner products against float64.

#include "gluon/kernels/cuda/norms.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

using cuda::MatrixNorm;

struct Pair {
  double norm, dual;
};

Pair wanted(MatrixNorm norm, const double* x, int64_t rows, int64_t columns) {
  const bool by_column = norm == MatrixNorm::kColumns;
  const int64_t lines = by_column ? columns : rows, length = by_column ? rows : columns;
  Pair p{0, 0};
  double all = 0;
  for (int64_t i = 0; i < lines; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < length; ++j) {
      const double v = std::abs(by_column ? x[j * columns + i] : x[i * columns + j]);
      squares += v * v;
      if (norm == MatrixNorm::kMaxEntry) p = {std::fmax(p.norm, v), p.dual + v};
    }
    all += squares;
    if (norm == MatrixNorm::kRows || by_column)
      p = {std::fmax(p.norm, std::sqrt(squares)), p.dual + std::sqrt(squares)};
  }
  if (norm == MatrixNorm::kEuclidean) p = {std::sqrt(all), std::sqrt(all)};
  return p;
}

void check_case(MatrixNorm norm, int64_t count, int64_t rows, int64_t columns, double magnitude, bool minus,
                size_t offset) {
  const std::string what = "norm " + std::to_string(static_cast<int>(norm)) + " of " + std::to_string(count) +
                           "x" + std::to_string(rows) + "x" + std::to_string(columns) + " at " +
                           std::to_string(magnitude);
  const size_t size = rows * columns;
  std::mt19937_64 random(size);
  std::vector<float> x = random_values<float>(count * size, magnitude, random);
  std::vector<float> y = random_values<float>(count * size, magnitude, random);
  if (count > 2) std::fill_n(x.begin() + size, size, 0.0F), std::fill_n(y.begin() + size, size, 0.0F);
  const Array<float> dx(x, offset), dy(y);
  Array<float> norms(count), duals(count);
  Array<unsigned char> workspace(cuda::norm_workspace(norm, count, rows, columns));
  const cuda::NormBatch batch{.count = count,
                              .rows = rows,
                              .columns = columns,
                              .x = dx.data(),
                              .y = minus ? dy.data() : nullptr,
                              .norms = norms.data(),
                              .dual_norms = duals.data(),
                              .workspace = workspace.data()};
  const auto run = [&] {
    norms.poison(), duals.poison(), workspace.poison();
    require(cuda::matrix_norms(norm, batch, nullptr), "matrix_norms");
    return norms.get();
  };
  const std::vector<float> got = run(), got_duals = duals.get();
  expect(same_bits(got, run()) && same_bits(got_duals, duals.get()), what + ": two runs differ");
  expect(norms.guard_intact() && duals.guard_intact() && workspace.guard_intact(), what + ": guard");
  std::vector<double> want, want_duals, difference;
  for (size_t i = 0; i < x.size(); ++i) difference.push_back(minus ? x[i] - y[i] : x[i]);
  for (int64_t i = 0; i < count; ++i) {
    const Pair p = wanted(norm, difference.data() + i * size, rows, columns);
    want.push_back(p.norm), want_duals.push_back(p.dual);
  }
  expect_close(got, want, 7e-8, 1e-45, what);
  expect_close(got_duals, want_duals, 7e-8, 1e-45, what + ": dual");
}

void check_nan(MatrixNorm norm) {
  std::vector<float> x(3 * 40 * 20, 1.0F);
  x[40 * 20 + 333] = NAN;
  const Array<float> dx(x);
  Array<float> norms(3), duals(3);
  Array<unsigned char> workspace(cuda::norm_workspace(norm, 3, 40, 20));
  require(cuda::matrix_norms(norm,
                             {.count = 3,
                              .rows = 40,
                              .columns = 20,
                              .x = dx.data(),
                              .norms = norms.data(),
                              .dual_norms = duals.data(),
                              .workspace = workspace.data()},
                             nullptr),
          "matrix_norms");
  for (const auto& values : {norms.get(), duals.get()}) {
    expect(!std::isnan(values[0]) && std::isnan(values[1]) && !std::isnan(values[2]),
           "norm " + std::to_string(static_cast<int>(norm)) + " of a matrix with NaN");
  }
}

void check_products(size_t count, size_t size, double magnitude) {
  std::mt19937_64 random(size);
  const std::vector<float> x = random_values<float>(count * size, magnitude, random);
  const std::vector<__half> y = random_values<__half>(count * size, 0.03, random);
  const Array<float> dx(x);
  const Array<__half> dy(y);
  Array<float> products(count);
  Array<unsigned char> workspace(cuda::inner_product_workspace(count, size));
  const auto run = [&] {
    products.poison(), workspace.poison();
    require(cuda::inner_products(dx.data(), dy.data(), cuda::ElementType::kFloat16, count, size, -2,
                                 products.data(), workspace.data(), nullptr),
            "inner_products");
    return products.get();
  };
  const std::vector<float> got = run();
  expect(same_bits(got, run()) && products.guard_intact(), "inner products: two runs differ, or the guard");
  std::vector<double> want(count), bound(count);
  for (size_t i = 0; i < x.size(); ++i) want[i / size] -= 2 * x[i] * to_double(y[i]);
  expect_close(got, want, 7e-8, 1e-13 * magnitude * size, "inner products " + std::to_string(size));
}

}  // namespace

void check_norms() {
  for (const MatrixNorm norm :
       {MatrixNorm::kMaxEntry, MatrixNorm::kEuclidean, MatrixNorm::kRows, MatrixNorm::kColumns}) {
    check_nan(norm);
    for (const double magnitude : {1.0, 1e-30, 1e30}) {
      check_case(norm, 3, 64, 128, magnitude, false, 0);
      check_case(norm, 3, 37, 53, magnitude, true, 0);
    }
    check_case(norm, 1, 1, 1, 1, false, 0);
    check_case(norm, 2, 1, 5000, 1, true, 0);
    check_case(norm, 2, 5000, 1, 1, false, 0);
    check_case(norm, 1, 40, 20000, 1, true, 0);
    check_case(norm, 2, 37, 24, 1, false, 1);
    check_case(norm, 1, 2500, 768, 1, false, 0);
    check_case(norm, 2, 0, 3, 1, false, 0);
  }
  check_products(3, 768 * 64, 1);
  check_products(2, 4099, 1e-30);
  check_products(1, 1, 1);
}

}  // namespace gluon::fused_check
