// The MLP's products with squared ReLU.

#include "lab/models/cuda/mlp_product.h"
#include "tests/lab/models/kernels/model_check.h"

namespace gluon::kernel_check {
namespace {

using lab::cuda::MlpShape;

// Rows 0, every, 2 every, ... of a product in float64: (rows, depth) times (columns, depth)^T or (depth, columns).
Vector product_rows(const std::vector<bf16>& a, const std::vector<bf16>& b, const MlpShape& shape, bool transpose_b,
                    int64_t every) {
  const auto [rows, columns, depth] = shape;
  Vector c;
  for (int64_t row = 0; row < rows; row += every) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += to_double(a[row * depth + k]) * to_double(b[transpose_b ? j * depth + k : k * columns + j]);
      }
      c.push_back(sum);
    }
  }
  return c;
}

template <typename T> std::vector<T> rows_of(const std::vector<T>& x, int64_t columns, int64_t every) {
  std::vector<T> some;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    if (i / columns % every == 0) some.push_back(x[i]);
  }
  return some;
}

void check_case(const MlpShape& shape, int64_t every = 1) {
  const auto [rows, columns, depth] = shape;
  const std::string what = join("mlp ", rows, "x", columns, "x", depth);
  std::mt19937_64 random(columns + depth);
  std::vector<bf16> x = random_values<bf16>(rows * depth, 1, random);
  const std::vector<bf16> g = random_values<bf16>(rows * depth, 1, random),
                          w = random_values<bf16>(static_cast<int64_t>(columns) * depth, 1 / std::sqrt(depth), random);
  if (rows > 1) x[(rows - 1) / every * every * depth] = rounded<bf16>(NAN);  // in a row that is compared
  Array<bf16> dx(x), dg(g), dw(w), y(rows * columns), gradient(rows * columns);
  const auto up = [&] {
    y.poison();
    require(lab::cuda::mlp_up(shape, dx.data(), dw.data(), y.data(), nullptr));
  };
  expect_repeatable(what, up, y);
  const std::vector<bf16> squares = rows_of(y.get(), columns, every);
  Vector want = product_rows(x, w, shape, true, every);
  for (double& z : want) z = z < 0 ? 0 : 2 * z * z;
  // The product is rounded before its square is, and its float32 sum before that.
  expect_close(squares, want, 3.2 * kRounding, 1e-6, what);

  const auto backward = [&](Array<bf16>& target) {
    require(lab::cuda::mlp_down_backward(shape, dg.data(), dw.data(), y.data(), target.data(), nullptr));
  };
  expect_repeatable(
      what + ": gradient", [&] { gradient.poison(), backward(gradient); }, gradient);
  const std::vector<bf16> got = gradient.get();
  want = product_rows(g, w, shape, false, every);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= std::sqrt(8 * to_double(squares[i]));
  expect_close(rows_of(got, columns, every), want, 2.2 * kRounding, 1e-5, what + ": gradient");
  backward(y);
  expect(same_bits(got, y.get()), what + ": gradient in place");
}

}  // namespace

void check_mlp() {
  for (const MlpShape& shape :
       {MlpShape{1, 8, 8}, {5, 24, 72}, {64, 64, 64}, {300, 264, 136}, {257, 520, 768}, {130, 3072, 768}}) {
    check_case(shape);
  }
  // Several tiles per cluster: depths that leave no time to store a tile during the next one, just enough, and more.
  for (const int depth : {136, 256, 264, 320, 384, 448, 840}) check_case({8000, 1032, depth}, 97);
  Array<bf16> a(1024), b(1024), c(1024);
  const auto refused = [&](const MlpShape& shape, bf16* x) {
    return lab::cuda::mlp_up(shape, x, b.data(), c.data(), nullptr) == cudaErrorInvalidValue &&
           lab::cuda::mlp_down_backward(shape, x, b.data(), b.data(), c.data(), nullptr) == cudaErrorInvalidValue;
  };
  expect(refused({8, 8, 8}, nullptr), "mlp: no matrix");
  expect(refused({8, 8, 8}, a.data() + 1), "mlp: an address that is not divisible by 16");
  expect(refused({8, 12, 8}, a.data()) && refused({8, 8, 12}, a.data()), "mlp: 12 columns, a depth of 12");
}

}  // namespace gluon::kernel_check
