// model_check [check|speed]: the kernels of a training step against float64, and their speed.

#include "tests/lab/models/kernels/model_check.h"

#include <algorithm>
#include <numeric>

#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "tests/kernels/kernel_clock.cuh"

namespace gluon::kernel_check {
namespace {

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
  Array<bf16> x(kSize), out(kSize), q(kSize), k(kSize), hidden(kSize), dhidden(kSize), dq(kSize), dk(kSize), dx(kSize),
      logits(first_logits.size());
  const lab::cuda::RotaryShape shape{kTokens, kTokens, kHeads, kDimension, angles.data(), angles.data()};
  const lab::cuda::MlpShape square{kTokens, kWidth, kWidth};
  const auto launch = [&](cudaStream_t stream) {
    require(lab::cuda::rms_norm_forward(x.data(), out.data(), norms.data(), kTokens, kWidth, stream));
    require(lab::cuda::qk_rotary_forward(shape, {out.data(), kWidth}, {x.data(), kWidth}, {q.data(), kWidth},
                                         {k.data(), kWidth}, inverse.data(), stream));
    require(lab::cuda::mlp_up(square, q.data(), weight.data(), hidden.data(), stream));
    require(lab::cuda::cross_entropy({.rows = kTokens,
                                      .vocabulary = kVocabulary,
                                      .logits = logits.data(),
                                      .labels = labels.data(),
                                      .losses = losses.data(),
                                      .scale = 1.0F / kTokens},
                                     stream));
    require(lab::cuda::mlp_down_backward(square, q.data(), weight.data(), hidden.data(), dhidden.data(), stream));
    const lab::cuda::RotaryGradients gradients{{q.data(), kWidth},       {k.data(), kWidth},   inverse.data(),
                                               {dhidden.data(), kWidth}, {out.data(), kWidth}, {}};
    require(lab::cuda::qk_rotary_backward(shape, gradients, {dq.data(), kWidth}, {dk.data(), kWidth}, {}, stream));
    require(lab::cuda::rms_norm_backward(out.data(), norms.data(), dq.data(), dk.data(), dx.data(), kTokens, kWidth,
                                         stream));
    require(lab::cuda::embedding_gradient({kTokens, kVocabulary, kWidth, sorted.data(), order.data(), dx.data(),
                                           head.data(), scale.data(), embedding.data(), firsts.data(), sums.data()},
                                          stream));
  };
  expect_capturable(
      [&] {
        x.set(first_x), logits.set(first_logits);
        poison(out, q, k, hidden, losses, norms, inverse, dhidden, dq, dk, dx, embedding);
      },
      launch,
      [&] { return bits_of(x, out, q, k, hidden, logits, losses, norms, inverse, dhidden, dq, dk, dx, embedding); });
}

// Speed at the sizes of GPT-124M and 32 x 1024 tokens.
constexpr int64_t kTokens = 32 * 1024, kWidth = 768;

void measure_block(Clock& clock) {
  const int64_t size = kTokens * kWidth;
  const double n = static_cast<double>(size);
  Random<bf16> x(size), y(size), out(size), d(size);
  Random<float> inverse(kTokens * 12);
  clock.row("rms_norm forward", "32768 x 768", 4 * n, [&] {
    return lab::cuda::rms_norm_forward(x.data(), out.data(), inverse.data(), kTokens, kWidth, nullptr);
  });
  const auto rms_norm_backward = [&](const bf16* residual) {
    return lab::cuda::rms_norm_backward(y.data(), inverse.data(), d.data(), residual, out.data(), kTokens, kWidth,
                                        nullptr);
  };
  clock.row("rms_norm backward", "32768 x 768", 6 * n, [&] { return rms_norm_backward(nullptr); });
  clock.row("  with the residual's gradient", "32768 x 768", 8 * n, [&] { return rms_norm_backward(out.data()); });
  Random<float> angles(1024 * 64);
  Random<bf16> packed(3 * size), dpacked(3 * size);
  const lab::cuda::RotaryShape shape{kTokens, 1024, 6, 128, angles.data(), angles.data()};
  clock.row("qk_rotary forward", "32768 x 2 x 6 x 128", 8 * n, [&] {
    return lab::cuda::qk_rotary_forward(shape, {packed.data(), 3 * kWidth}, {packed.data() + kWidth, 3 * kWidth},
                                        {x.data(), kWidth}, {y.data(), kWidth}, inverse.data(), nullptr);
  });
  lab::cuda::RotaryGradients gradients{{x.data(), kWidth},   {y.data(), kWidth}, inverse.data(),
                                       {out.data(), kWidth}, {d.data(), kWidth}, {}};
  const auto rotary_backward = [&](lab::cuda::Heads dvalue) {
    return lab::cuda::qk_rotary_backward(shape, gradients, {dpacked.data(), 3 * kWidth},
                                         {dpacked.data() + kWidth, 3 * kWidth}, dvalue, nullptr);
  };
  clock.row("qk_rotary backward", "32768 x 2 x 6 x 128", 12 * n, [&] { return rotary_backward({}); });
  gradients.dvalue = {packed.data(), kWidth};
  clock.row("  with the values", "32768 x 3 x 6 x 128", 16 * n, [&] {
    return rotary_backward({dpacked.data() + 2 * kWidth, 3 * kWidth});
  });
  Random<bf16> dhidden(4 * size), hidden(4 * size), weight(4 * kWidth * kWidth);
  const lab::cuda::MlpShape wide{kTokens, 4 * static_cast<int>(kWidth), static_cast<int>(kWidth)};
  clock.row("mlp up", "32768 x 768 x 3072", 10 * n,
            [&] { return lab::cuda::mlp_up(wide, x.data(), weight.data(), hidden.data(), nullptr); });
  clock.row("mlp down backward", "32768 x 768 x 3072", 18 * n, [&] {
    return lab::cuda::mlp_down_backward(wide, x.data(), weight.data(), hidden.data(), dhidden.data(), nullptr);
  });
}

// Tokens as frequent as in a text: the k-th as 1 / k, shuffled.
void measure_embedding_gradient(Clock& clock) {
  const int vocabulary = 50304, width = static_cast<int>(kWidth);
  std::mt19937_64 random(1);
  std::vector<int> tokens(kTokens);
  for (int& token : tokens) {
    token = static_cast<int>(std::pow(vocabulary, std::uniform_real_distribution<double>()(random))) - 1;
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<int64_t> order(kTokens);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Array<int> sorted(tokens), firsts(vocabulary + 1);
  Array<int64_t> places(order);
  Random<bf16> gradient(kTokens * width);
  Random<float> head(static_cast<size_t>(vocabulary) * width), scale(1), out(head.size()),
      sums(lab::cuda::embedding_chunks(kTokens) * width);
  clock.row("embedding_gradient", "32768 to 50304 x 768", 8.0 * head.size() + 2.0 * gradient.size(), [&] {
    return lab::cuda::embedding_gradient(
        {static_cast<int>(kTokens), vocabulary, width, sorted.data(), places.data(), gradient.data(), head.data(),
         scale.data(), out.data(), firsts.data(), sums.data()},
        nullptr);
  });
}

void measure_entropy(Clock& clock, int64_t vocabulary) {
  const std::string shape = join("32768 x ", vocabulary);
  const int64_t size = kTokens * vocabulary;
  Random<bf16> logits(size);
  Array<int64_t> labels(std::vector<int64_t>(kTokens, 11));
  Array<float> losses(kTokens);
  lab::cuda::CrossEntropy arguments{.rows = kTokens,
                                    .vocabulary = vocabulary,
                                    .logits = logits.data(),
                                    .labels = labels.data(),
                                    .losses = losses.data(),
                                    .scale = 1};
  const auto run = [&] { return lab::cuda::cross_entropy(arguments, nullptr); };
  clock.row("cross_entropy, loss and gradient", shape, 4.0 * size, run);
  arguments.gradient = false;
  clock.row("cross_entropy, loss", shape, 2.0 * size, run);
}

void measure_speed() {
  Clock clock;
  measure_block(clock);
  measure_embedding_gradient(clock);
  for (const int64_t vocabulary : {50304, 50257}) measure_entropy(clock, vocabulary);
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int count, char** arguments) {
  using namespace gluon::kernel_check;
  return run_program(count, arguments,
                     {{"rms_norm", check_rms_norm},
                      {"qk_rotary", check_qk_rotary},
                      {"mlp", check_mlp},
                      {"cross_entropy", check_cross_entropy},
                      {"embedding", check_embedding_gradient},
                      {"graph", check_graph}},
                     measure_speed);
}
