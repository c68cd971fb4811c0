#include "lab/models/fused.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/cuda.h>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"
#include "lab/models/nanogpt.h"
#include "tests/expect_error.h"
#include "tests/lab/models/training_checks.h"

namespace gluon::lab {
namespace {

constexpr NanoGptOptions kSmall{.vocabulary = 512, .context = 64, .layers = 3, .width = 128, .heads = 2};

class Fused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !kernels::available(at::empty({1}, at::kCUDA))) {
      GTEST_SKIP() << "needs a Hopper GPU and a build with the CUDA kernels";
    }
  }
};

// text (B, context + 1) -> inputs and targets
Batch batch_of(const at::Tensor& text) {
  const int64_t context = text.size(1) - 1;
  return {text.narrow(1, 0, context).contiguous(), text.narrow(1, 1, context).contiguous()};
}

Batch random_batch(const NanoGptOptions& options, int64_t size, uint64_t seed) {
  const at::Generator random = at::detail::createCPUGenerator(seed);
  return batch_of(at::randint(0, options.vocabulary, {size, options.context + 1}, random, at::kLong));
}

Batch to_cuda(const Batch& batch) { return {batch.inputs.cuda(), batch.targets.cuda()}; }

std::shared_ptr<NanoGpt> fused_model(const NanoGptOptions& options) {
  auto model = std::make_shared<NanoGpt>(options);
  EXPECT_EQ(model->slow_part(), "");  // in float32
  model->to(at::Device(at::kCUDA));
  EXPECT_TRUE(model->set_compute_type(at::kBFloat16));
  return model;
}

// bfloat16 has 8 bits: the gradients of a few layers agree to within a few roundings (2^-8 = 0.004 each).
void expect_as_in_float64(const NanoGptOptions& options, const Batch& batch) {
  NanoGpt exact(options);
  const auto fused = fused_model(options);
  fill_projections(exact, 0.1);
  fill_projections(*fused, 0.1);
  exact.to(at::kDouble);
  const at::Tensor expected = exact.loss(batch, 0);
  const at::Tensor loss = fused->loss(to_cuda(batch), 0);
  expected.backward();
  (loss / 3).backward();  // as with three batches per step
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 0.02);
  const auto parameters = fused->named_parameters();
  for (const auto& entry : exact.named_parameters()) {
    const at::Tensor right = entry.value().grad();
    const at::Tensor ours = 3 * parameters[entry.key()].grad().to(at::kCPU, at::kDouble);
    EXPECT_EQ(parameters[entry.key()].grad().scalar_type(), at::kFloat);
    EXPECT_LT(((ours - right).norm() / right.norm()).item<double>(), 0.04) << entry.key();
  }
}

TEST_F(Fused, LossAndGradientsAgreeWithFloat64) { expect_as_in_float64(kSmall, random_batch(kSmall, 4, 1)); }

// More tiles in the MLP's products than the GPU has clusters, and a depth just large enough to store one during the
// next.
TEST_F(Fused, WideProductsAgreeWithFloat64) {
  const NanoGptOptions wide{.vocabulary = 512, .context = 128, .layers = 1, .width = 320, .heads = 5};
  expect_as_in_float64(wide, random_batch(wide, 32, 1));
}

TEST_F(Fused, RejectsSequencesBeyondTheContext) {
  const auto model = fused_model(kSmall);
  const at::Tensor tokens = at::zeros({1, kSmall.context + 1}, at::device(at::kCUDA).dtype(at::kLong));
  EXPECT_THROW(model->loss({tokens, tokens}, 0), InputError);
}

TEST_F(Fused, ReportsVocabulariesWithASlowLoss) {
  for (const int64_t vocabulary : {1001, 1008, 51200, 51208}) {
    NanoGptOptions options = kSmall;
    options.vocabulary = vocabulary;
    EXPECT_EQ(fused_model(options)->slow_part().empty(), vocabulary == 1008 || vocabulary == 51200) << vocabulary;
  }
}

TEST_F(Fused, EvaluationGivesTheTrainingLoss) {
  const auto model = fused_model(kSmall);
  fill_projections(*model, 0.1);
  const Batch batch = to_cuda(random_batch(kSmall, 4, 2));
  const double trained = model->loss(batch, 0).item<double>();
  const at::NoGradGuard no_grad;
  EXPECT_EQ(model->loss(batch, 0).item<double>(), trained);
}

// at::embedding() would end the process with an assertion on inputs outside, so they are tested alone.
TEST_F(Fused, ATargetOutsideTheVocabularyStopsTheStep) {
  const auto model = fused_model(kSmall);
  const Batch batch = to_cuda(random_batch(kSmall, 4, 3));
  Optimizer optimizer(model->layers(), presets::unscion());
  for (const int64_t target : {int64_t{-1}, kSmall.vocabulary, int64_t{1} << 40}) {
    batch.targets.view(-1).narrow(0, 7, 1).fill_(target);
    const at::Tensor loss = model->loss(batch, 0);
    EXPECT_TRUE(std::isnan(loss.item<double>())) << target;
    loss.backward();
    EXPECT_THROW(optimizer.step(); optimizer.wait(), NonFiniteGradient) << target;
    optimizer.zero_grad();
  }
}

TEST_F(Fused, ATokenOutsideTheVocabularyMakesTheGradientNaN) {
  const at::Tensor head = at::ones({8, 16}, at::kCUDA), factor = at::ones({}, at::kCUDA);
  const at::Tensor gradient = at::ones({3, 16}, at::device(at::kCUDA).dtype(at::kBFloat16));
  for (const int64_t token : {int64_t{-1}, int64_t{8}, (int64_t{1} << 32) + 5}) {
    const at::Tensor tokens = at::tensor({int64_t{2}, token, int64_t{2}}, at::device(at::kCUDA).dtype(at::kLong));
    const at::Tensor out = fused::embedding_gradient(head, factor, tokens, gradient);
    EXPECT_TRUE(out[0].isnan().all().item<bool>()) << token;
    EXPECT_EQ(out.narrow(0, 1, 7).sum().item<float>(), 16 * (7 + 2)) << token;
  }
}

// Every transposition, both types of the result; the last shapes have the tiles and depths whose kernels are chosen.
TEST_F(Fused, ProductsAgreeWithFloat32) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Shape{24, 40, 16}, Shape{8192, 2304, 768}, Shape{2304, 8192, 16384}}) {
    for (const int i : {0, 1, 2, 3, 4}) {
      SCOPED_TRACE(join(m, ", ", n, ", ", k, ", ", i));
      const bool transpose_a = i % 2 == 1, transpose_b = i / 2 % 2 == 1, add = i == 4;
      const auto random = [](int64_t rows, int64_t columns, bool transposed) {
        return at::randn({transposed ? columns : rows, transposed ? rows : columns}, at::kCUDA).to(at::kBFloat16);
      };
      const at::Tensor a = random(m, k, transpose_a), b = random(k, n, transpose_b);
      const at::Tensor wide_a = a.to(at::kFloat), wide_b = b.to(at::kFloat);
      at::Tensor expected = at::mm(transpose_a ? wide_a.t() : wide_a, transpose_b ? wide_b.t() : wide_b);
      for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
        const at::Tensor before = at::randn({m, n}, at::kCUDA).to(type), c = before.clone();
        fused::multiply_(c, a, transpose_a, b, transpose_b, add);
        const at::Tensor right = add ? expected + before.to(at::kFloat) : expected;
        const at::Tensor error = (c.to(at::kFloat) - right).norm() / right.norm();
        EXPECT_LT(error.item<double>(), type == at::kFloat ? 1e-4 : 4e-3);
      }
    }
  }
}

TEST_F(Fused, TwoStreamsSideBySideSeeEachOthersResults) {
  const at::Tensor x = at::zeros({1 << 22}, at::kCUDA);
  at::Tensor first, second;
  for (int i = 0; i < 100; ++i) {
    x.add_(1);
    fused::side_by_side(
        x.device(), [&] { first = x * 2; }, [&] { second = x * 3; });
    x.copy_(second - first);  // x again
  }
  EXPECT_TRUE((x == 100).all().item<bool>());
}

TEST_F(Fused, TensorsThatTheKernelsCannotReadAreNamed) {
  const auto half = at::device(at::kCUDA).dtype(at::kBFloat16);
  const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, half); };
  const at::Tensor x = zeros({4, 16}), labels = at::zeros({4}, half.dtype(at::kLong));
  EXPECT_INPUT_ERROR(fused::rms_norm(at::zeros({4, 16})), "rms_norm: the kernels do not run on cpu: ");
  EXPECT_INPUT_ERROR(fused::rms_norm(x.to(at::kFloat)),
                     "rms_norm: expected x contiguous BFloat16 [4, 16] on cuda:0, got Float [4, 16] on cuda:0");
  EXPECT_INPUT_ERROR(fused::rms_norm(x.t()), "got not contiguous BFloat16 [16, 4]");
  EXPECT_INPUT_ERROR(fused::rms_norm(zeros({4, 12})), "rms_norm: the width must be a multiple of 8 up to 8192, got 12");
  const fused::RmsNorm norm = fused::rms_norm(x);
  EXPECT_INPUT_ERROR(fused::rms_norm_backward(norm, zeros({4, 8}), {}), "rms_norm_backward: expected gradient");
  EXPECT_INPUT_ERROR(fused::rms_norm_backward(norm, x, zeros({5, 16})), "rms_norm_backward: expected residual");
  EXPECT_INPUT_ERROR(fused::mlp_up(x, zeros({32})), "mlp_up: expected weight (n, k), got BFloat16 [32]");
  EXPECT_INPUT_ERROR(fused::mlp_up(x, zeros({32, 8})), "mlp_up: expected x (..., k) contiguous BFloat16 [4, 8]");
  EXPECT_INPUT_ERROR(fused::mlp_up(x, zeros({12, 16})), "mlp_up: n and k must be a multiple of 8");
  EXPECT_INPUT_ERROR(fused::mlp_down_backward(x, zeros({16, 32}), zeros({5, 32})), "expected gradient (N, k)");
  const fused::Rotary rotary = make_rotary(8, 2, 16, x.device());
  const at::Tensor qkv = zeros({1, 8, 3, 2, 16}), heads = zeros({1, 8, 2, 16});
  EXPECT_INPUT_ERROR(fused::qk_rotary_(x, rotary), "qk_rotary: expected qkv (B, T, 3, heads, D), got BFloat16 [4, 16]");
  EXPECT_INPUT_ERROR(fused::qk_rotary_(zeros({1, 9, 3, 2, 16}), rotary), "expected angles (positions >= T, D / 2)");
  const at::Tensor inverse = fused::qk_rotary_(qkv, rotary);
  EXPECT_INPUT_ERROR(fused::qk_rotary_backward(qkv, inverse, heads, heads, heads.transpose(1, 2), rotary),
                     "qk_rotary_backward: expected the gradient of queries, keys and values");
  EXPECT_INPUT_ERROR(fused::cross_entropy_(x, labels.to(at::kInt), {}), "cross_entropy: expected labels (n)");
  EXPECT_INPUT_ERROR(fused::cross_entropy_(x, labels.cpu(), {}), "got Long [4] on cpu");
  EXPECT_INPUT_ERROR(fused::embedding_gradient(x, at::ones({}, at::kCUDA), labels, x),
                     "embedding_gradient: expected head (v, width) contiguous Float [4, 16]");
  EXPECT_INPUT_ERROR(fused::multiply_(x, x, false, x, false), "multiply: [4, 16] and [4, 16] do not make [4, 16]");
  EXPECT_INPUT_ERROR(fused::multiply_(x, x.t(), true, x, false), "multiply: expected contiguous matrices on one GPU");
  EXPECT_INPUT_ERROR(fused::multiply_(x, x.to(at::kFloat), false, x, false), "multiply: expected bfloat16 factors");
}

// Each token has 16 equally likely successors, so the best possible loss is log 16 = 2.77.
Batch markov_batch(int64_t size, uint64_t seed) {
  const at::Generator random = at::detail::createCPUGenerator(seed);
  std::vector<at::Tensor> tokens{at::randint(0, kSmall.vocabulary, {size}, random, at::kLong)};
  for (int64_t t = 0; t < kSmall.context; ++t) {
    tokens.push_back((5 * tokens.back() + at::randint(0, 16, {size}, random, at::kLong)) % kSmall.vocabulary);
  }
  return batch_of(at::stack(tokens, 1));
}

// The losses of 200 steps stay within 10 % of float32 on the CPU, and within 2 % on average; measured on an H200: 5.2
// and 0.9 %, most of it where the curve is steepest.
TEST_F(Fused, TwoHundredStepsFollowTheFloat32Curve) {
  NanoGpt reference(kSmall);
  const auto fused = fused_model(kSmall);
  Optimizer slow(reference.layers(), presets::unscion()), fast(fused->layers(), presets::unscion());
  double mean = 0, worst = 0, last = 0;
  for (uint64_t step = 0; step < 200; ++step) {
    const Batch batch = markov_batch(8, step);
    slow.zero_grad();
    fast.zero_grad();
    const at::Tensor expected = reference.loss(batch, 0);
    const at::Tensor loss = fused->loss(to_cuda(batch), 0);
    expected.backward();
    loss.backward();
    slow.step();
    fast.step();
    last = expected.item<double>();
    const double difference = std::abs(loss.item<double>() / last - 1);
    mean += difference / 200;
    worst = std::max(worst, difference);
  }
  EXPECT_LT(last, 4.5);  // it has learned something
  EXPECT_LT(mean, 0.02);
  EXPECT_LT(worst, 0.1);
}

}  // namespace
}  // namespace gluon::lab
