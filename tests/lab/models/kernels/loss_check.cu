// Cross-entropy with its gradient, and the gradient of an embedding that is also the head.

#include <algorithm>
#include <numeric>

#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "tests/lab/models/kernels/model_check.h"

namespace gluon::kernel_check {
namespace {

void check_entropy_case(int64_t rows, int64_t vocabulary, double magnitude) {
  const std::string what = join("cross_entropy ", rows, "x", vocabulary, " at ", magnitude);
  std::mt19937_64 random(vocabulary + rows);
  std::vector<bf16> x = random_values<bf16>(rows * vocabulary, magnitude, random);
  std::vector<int64_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = static_cast<int64_t>(random() % vocabulary);
  labels[0] = vocabulary - 1;
  if (rows > 2) labels[1] = 0, labels[2] = vocabulary;  // labels[2] is outside
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
    const bool inside = labels[row] < vocabulary;
    want_losses.push_back(inside ? most + std::log(sum) - to_double(of[labels[row]]) : NAN);
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double p = std::exp(to_double(of[j]) - most) / sum;
      want.push_back(!inside ? NAN : 0.125 * (p - (j == labels[row])));
    }
  }
  expect_close(got_losses, want_losses, 1e-6, 2e-6, what + ": loss");
  expect_close(got, want, kRounding + 3e-6 * std::fmin(magnitude, 10), 1e-8, what + ": gradient");
}

// A third of the tokens are token 3, as in a text; the others are uniform.
void check_embedding_case(int tokens, int vocabulary, int width) {
  const std::string what = join("embedding_gradient ", tokens, " tokens, ", vocabulary, "x", width);
  std::mt19937_64 random(tokens + width);
  std::vector<int> token(tokens);
  for (int& t : token) {
    t = random() % 3 == 0 ? std::min(3, vocabulary - 1) : static_cast<int>(random() % vocabulary);
  }
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
  for (int t = 0; t < tokens; ++t) {
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

}  // namespace

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

void check_embedding_gradient() {
  check_embedding_case(0, 5, 8);
  check_embedding_case(1, 1, 8);
  check_embedding_case(100, 3, 264);
  check_embedding_case(70, 9, 388);
  check_embedding_case(500, 40, 1032);
  check_embedding_case(333, 17, 256);
  check_embedding_case(2000, 1001, 768);
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

}  // namespace gluon::kernel_check
