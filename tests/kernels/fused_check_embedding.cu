// The gradient of an embedding that is the head, too, against float64.

#include <algorithm>
#include <numeric>

#include "lab/models/cuda/embedding_gradient.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

// A third of the tokens are token 3, as in a text; the others are anything.
void check_case(int tokens, int vocabulary, int width) {
  const std::string what = "embedding_gradient " + std::to_string(tokens) + " tokens, " +
                           std::to_string(vocabulary) + "x" + std::to_string(width);
  std::mt19937_64 random(tokens + width);
  std::vector<int> token(tokens);
  for (int& t : token)
    t = random() % 3 == 0 ? std::min(3, vocabulary - 1) : static_cast<int>(random() % vocabulary);
  std::vector<int64_t> order(tokens);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return token[a] < token[b]; });
  std::vector<int> sorted;
  for (int64_t i : order) sorted.push_back(token[i]);
  const size_t size = static_cast<size_t>(vocabulary) * width;
  const float scale = 0.3F;
  const std::vector<bf16> gradient = random_values<bf16>(static_cast<size_t>(tokens) * width, 1, random);
  const std::vector<float> head = random_values<float>(size, 1, random);

  Array<int> d_sorted(sorted);
  Array<int64_t> d_order(order);
  Array<bf16> d_gradient(gradient);
  Array<float> d_head(head), d_scale(std::vector<float>{scale}), out(size),
      sums(lab::cuda::embedding_chunks(tokens) * width);
  Array<int> firsts(vocabulary + 1);
  const auto run = [&](Array<float>& target) {
    require(lab::cuda::embedding_gradient(
                {tokens, vocabulary, width, d_sorted.data(), d_order.data(), d_gradient.data(), d_head.data(),
                 d_scale.data(), target.data(), firsts.data(), sums.data()},
                nullptr),
            "embedding_gradient");
    return target.get();
  };
  const std::vector<float> got = run(out);
  out.poison();
  expect(same_bits(got, run(out)) && out.guard_intact() && sums.guard_intact() && firsts.guard_intact(),
         what + ": two runs, guards");
  std::vector<double> want(size), sizes(size);
  for (size_t i = 0; i < size; ++i) want[i] = double{scale} * head[i], sizes[i] = std::abs(want[i]);
  for (int t = 0; t < tokens; ++t) {
    for (int j = 0; j < width; ++j) {
      const double entry = to_double(gradient[static_cast<size_t>(t) * width + j]);
      const size_t at = static_cast<size_t>(token[t]) * width + j;
      want[at] += entry, sizes[at] += std::abs(entry);
    }
  }
  expect_close(got, want, 1e-6, 1e-6 * largest(sizes), what);
  expect(same_bits(got, run(d_head)), what + ": in place");
}

}  // namespace

void check_embedding_gradient() {
  check_case(0, 5, 8);
  check_case(1, 1, 8);
  check_case(100, 3, 264);
  check_case(70, 9, 388);
  check_case(500, 40, 1032);
  check_case(333, 17, 256);
  check_case(2000, 1001, 768);
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
  expect(!refused(0, 8) && refused(0, 7) && refused(1, 8),
         "embedding_gradient: width 7, tokens without gradients");
  require(cudaDeviceSynchronize(), "embedding_gradient");
}

}  // namespace gluon::fused_check
