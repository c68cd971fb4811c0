#include "lab/models/fused.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/cuda.h>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"
#include "lab/models/nanogpt.h"
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
