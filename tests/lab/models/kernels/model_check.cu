// model_check: the kernels of a training step against float64.

#include <algorithm>
#include <numeric>

#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {

// norm_check.cu
void check_rms_norm();
void check_qk_rotary();

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

void check_mlp_case(const MlpShape& shape, int64_t every = 1) {
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

void check_mlp() {
  for (const MlpShape& shape :
       {MlpShape{1, 8, 8}, {5, 24, 72}, {64, 64, 64}, {300, 264, 136}, {257, 520, 768}, {130, 3072, 768}}) {
    check_mlp_case(shape);
  }
  // Several tiles per cluster: depths that leave no time to store a tile during the next one, just enough, and more.
  for (const int depth : {136, 256, 264, 320, 384, 448, 840}) check_mlp_case({8000, 1032, depth}, 97);
  Array<bf16> a(1024), b(1024), c(1024);
  const auto refused = [&](const MlpShape& shape, bf16* x) {
    return lab::cuda::mlp_up(shape, x, b.data(), c.data(), nullptr) == cudaErrorInvalidValue &&
           lab::cuda::mlp_down_backward(shape, x, b.data(), b.data(), c.data(), nullptr) == cudaErrorInvalidValue;
  };
  expect(refused({8, 8, 8}, nullptr), "mlp: no matrix");
  expect(refused({8, 8, 8}, a.data() + 1), "mlp: an address that is not divisible by 16");
  expect(refused({8, 12, 8}, a.data()) && refused({8, 8, 12}, a.data()), "mlp: 12 columns, a depth of 12");
}

void check_entropy_case(int64_t rows, int64_t vocabulary, double magnitude) {
  const std::string what = join("cross_entropy ", rows, "x", vocabulary, " at ", magnitude);
  std::mt19937_64 random(vocabulary + rows);
  std::vector<bf16> x = random_values<bf16>(rows * vocabulary, magnitude, random);
  std::vector<int64_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = static_cast<int64_t>(random() % vocabulary);
  labels[0] = vocabulary - 1;
  if (rows > 2) labels[1] = 0, labels[2] = vocabulary;  // labels[2] is outside
  if (rows > 4) labels[4] = -1;
  if (vocabulary > 8 && rows > 3) x[3 * vocabulary + (labels[3] + 1) % vocabulary] = rounded<bf16>(-INFINITY);
  Array<bf16> logits(x);
  Array<int64_t> targets(labels);
  Array<float> losses(rows);
  lab::cuda::CrossEntropy arguments{.rows = rows,
                                    .vocabulary = vocabulary,
                                    .logits = logits.data(),
                                    .labels = targets.data(),
                                    .losses = losses.data(),
                                    .scale = 0.125F,
                                    .gradient = true};
  const auto run = [&] {
    logits.set(x), losses.poison();
    require(lab::cuda::cross_entropy(arguments, nullptr));
  };
  expect_repeatable(what, run, logits, losses);
  const std::vector<bf16> got = logits.get();
  const std::vector<float> got_losses = losses.get();
  arguments.gradient = false;
  run();
  expect(same_bits(logits.get(), x) && same_bits(got_losses, losses.get()), what + ": loss alone");
  Vector want, want_losses;
  for (int64_t row = 0; row < rows; ++row) {
    const bf16* of = x.data() + row * vocabulary;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) most = std::fmax(most, to_double(of[j]));
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(to_double(of[j]) - most);
    const bool inside = labels[row] >= 0 && labels[row] < vocabulary;
    want_losses.push_back(inside ? most + std::log(sum) - to_double(of[labels[row]]) : NAN);
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double p = std::exp(to_double(of[j]) - most) / sum;
      want.push_back(!inside ? NAN : 0.125 * (p - (j == labels[row])));
    }
  }
  expect_close(got_losses, want_losses, 1e-6, 2e-6, what + ": loss");
  expect_close(got, want, kRounding + 3e-6 * std::fmin(magnitude, 10), 1e-8, what + ": gradient");
}

void check_cross_entropy() {
  check_entropy_case(300, 50304, 3);  // three rows for the first blocks
  check_entropy_case(5, 50304, 30);
  check_entropy_case(1000, 1024, 3);  // eight rows per block
  check_entropy_case(5, 8, 1);
  check_entropy_case(5, 51200, 1);
  check_entropy_case(5, 51208, 1);  // too many for the registers
  check_entropy_case(7, 50257, 3);  // the plain path
  check_entropy_case(7, 1001, 3);
  check_entropy_case(4, 4096, 1e30);
  check_entropy_case(4, 4096, 1e-30);
  check_entropy_case(4, 4097, 1e30);
}

// A third of the tokens are token 3, as in a text; the others are uniform. The first ones are replaced by `outside`,
// which are not in the vocabulary: row 0 becomes NaN.
void check_embedding_case(int tokens, int vocabulary, int width, const std::vector<int>& outside = {}) {
  const std::string what =
      join("embedding_gradient ", tokens, " tokens, ", outside.size(), " outside, ", vocabulary, "x", width);
  std::mt19937_64 random(tokens + width);
  std::vector<int> token(tokens);
  for (int& t : token) {
    t = random() % 3 == 0 ? std::min(3, vocabulary - 1) : static_cast<int>(random() % vocabulary);
  }
  std::copy(outside.begin(), outside.end(), token.begin());
  std::vector<int64_t> order(tokens);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return token[a] < token[b]; });
  std::vector<int> sorted;
  for (int64_t i : order) sorted.push_back(token[i]);
  const size_t size = static_cast<size_t>(vocabulary) * width;
  const float scale = 0.3F;
  const std::vector<bf16> gradient = random_values<bf16>(static_cast<size_t>(tokens) * width, 1, random);
  const std::vector<float> head = random_values<float>(size, 1, random);

  Array<int> d_sorted(sorted), firsts(vocabulary + 1);
  Array<int64_t> d_order(order);
  Array<bf16> d_gradient(gradient);
  Array<float> d_head(head), d_scale(std::vector<float>{scale}), out(size),
      sums(lab::cuda::embedding_chunks(tokens) * width);
  const auto run = [&](Array<float>& target) {
    require(
        lab::cuda::embedding_gradient({tokens, vocabulary, width, d_sorted.data(), d_order.data(), d_gradient.data(),
                                       d_head.data(), d_scale.data(), target.data(), firsts.data(), sums.data()},
                                      nullptr));
  };
  expect_repeatable(
      what, [&] { out.poison(), run(out); }, out, sums, firsts);
  const std::vector<float> got = out.get();
  Vector want(size), sizes(size);
  for (size_t i = 0; i < size; ++i) want[i] = double{scale} * head[i], sizes[i] = std::abs(want[i]);
  if (!outside.empty()) std::fill_n(want.begin(), width, NAN);
  for (int t = static_cast<int>(outside.size()); t < tokens; ++t) {
    for (int j = 0; j < width; ++j) {
      const double entry = to_double(gradient[static_cast<size_t>(t) * width + j]);
      const size_t at = static_cast<size_t>(token[t]) * width + j;
      want[at] += entry, sizes[at] += std::abs(entry);
    }
  }
  expect_close(got, want, 1e-6, 1e-6 * largest(sizes), what);
  run(d_head);
  expect(same_bits(got, d_head.get()), what + ": in place");
}

void check_embedding_gradient() {
  check_embedding_case(0, 5, 8);
  check_embedding_case(1, 1, 8);
  check_embedding_case(100, 3, 264);
  check_embedding_case(70, 9, 388);
  check_embedding_case(500, 40, 1032);
  check_embedding_case(333, 17, 256);
  check_embedding_case(2000, 1001, 768);
  check_embedding_case(100, 9, 388, {-1});
  check_embedding_case(100, 9, 388, {9});
  check_embedding_case(500, 40, 1032, {-1000000, -1, 40, 2000000000});
  Array<float> floats(64);
  Array<int> firsts(2);
  const auto refused = [&](int tokens, int width) {
    return lab::cuda::embedding_gradient({.tokens = tokens,
                                          .vocabulary = 1,
                                          .width = width,
                                          .head = floats.data(),
                                          .scale = floats.data(),
                                          .out = floats.data(),
                                          .firsts = firsts.data()},
                                         nullptr) == cudaErrorInvalidValue;
  };
  expect(!refused(0, 8) && refused(0, 7) && refused(1, 8), "embedding_gradient: width 7, tokens without gradients");
  require(cudaDeviceSynchronize());
}

// The kernels of a training step one after another, as one CUDA graph and by themselves.
void check_graph() {
  constexpr int kTokens = 40, kHeads = 2, kDimension = 64, kWidth = kHeads * kDimension, kVocabulary = 2048;
  constexpr size_t kSize = kTokens * kWidth;
  std::mt19937_64 random(5);
  const std::vector<bf16> first_x = random_values<bf16>(kSize, 1, random),
                          first_logits = random_values<bf16>(kTokens * kVocabulary, 1, random);
  const Array<float> angles(random_values<float>(kTokens * kDimension / 2, 1, random)),
      head(random_values<float>(kVocabulary * kWidth, 1, random)), scale(std::vector<float>{0.1F});
  const Array<bf16> weight(random_values<bf16>(kWidth * kWidth, 1, random));
  const Array<int64_t> labels(std::vector<int64_t>(kTokens, 17)), order(std::vector<int64_t>(kTokens, 3));
  const Array<int> sorted(std::vector<int>(kTokens, 17)), firsts(kVocabulary + 1);
  Array<float> inverse(kTokens * 2 * kHeads), losses(kTokens), norms(kTokens), embedding(head.size()),
      sums(static_cast<size_t>(lab::cuda::embedding_chunks(kTokens) * kWidth));
  Array<bf16> x(kSize), out(kSize), q(kSize), k(kSize), hidden(kSize), dhidden(kSize), dq(kSize), dk(kSize), dv(kSize),
      dx(kSize), logits(first_logits.size());
  const lab::cuda::RotaryShape shape{kTokens, kTokens, kHeads, kDimension, angles.data(), angles.data()};
  const lab::cuda::MlpShape square{kTokens, kWidth, kWidth};
  const auto heads = [&](const Array<bf16>& entries) { return lab::cuda::Heads{entries.data(), kWidth}; };
  const auto launch = [&](cudaStream_t stream) {
    require(lab::cuda::rms_norm_forward(x.data(), out.data(), norms.data(), kTokens, kWidth, stream));
    require(lab::cuda::qk_rotary_forward(shape, {heads(out), heads(x)}, {heads(q), heads(k)}, inverse.data(), stream));
    require(lab::cuda::mlp_up(square, q.data(), weight.data(), hidden.data(), stream));
    require(lab::cuda::cross_entropy({.rows = kTokens,
                                      .vocabulary = kVocabulary,
                                      .logits = logits.data(),
                                      .labels = labels.data(),
                                      .losses = losses.data(),
                                      .scale = 1.0F / kTokens},
                                     stream));
    require(lab::cuda::mlp_down_backward(square, q.data(), weight.data(), hidden.data(), dhidden.data(), stream));
    require(lab::cuda::qk_rotary_backward(shape, {heads(q), heads(k)}, inverse.data(),
                                          {heads(dhidden), heads(out), heads(q)}, {heads(dq), heads(dk), heads(dv)},
                                          stream));
    require(lab::cuda::rms_norm_backward(out.data(), norms.data(), dq.data(), dk.data(), dx.data(), kTokens, kWidth,
                                         stream));
    require(lab::cuda::embedding_gradient({kTokens, kVocabulary, kWidth, sorted.data(), order.data(), dx.data(),
                                           head.data(), scale.data(), embedding.data(), firsts.data(), sums.data()},
                                          stream));
  };
  expect_capturable(
      [&] {
        x.set(first_x), logits.set(first_logits);
        poison(out, q, k, hidden, losses, norms, inverse, dhidden, dq, dk, dv, dx, embedding);
      },
      launch,
      [&] {
        return bits_of(x, out, q, k, hidden, logits, losses, norms, inverse, dhidden, dq, dk, dv, dx, embedding);
      });
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int, char** arguments) {
  using namespace gluon::kernel_check;
  return run_program(arguments[0], {{"rms_norm", check_rms_norm},
                                    {"qk_rotary", check_qk_rotary},
                                    {"mlp", check_mlp},
                                    {"cross_entropy", check_cross_entropy},
                                    {"embedding", check_embedding_gradient},
                                    {"graph", check_graph}});
}
