#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/cuda.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/models/cifar_cnn.h"
#include "tests/lab/models/training_checks.h"

namespace gluon::lab {
namespace {

const CifarCnnOptions kSmall{.widths = {16, 32, 32}};
constexpr double kLabelSmoothing = 0.2;

class CifarCnnHalf : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() != at::kCUDA) return;
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a CUDA GPU";
    if (!model()->set_compute_type(at::kBFloat16)) GTEST_SKIP() << "needs a GPU that convolves in bfloat16";
    at::globalContext().setAllowTF32CuDNN(false);  // for the float32 reference
  }
  void TearDown() override { at::globalContext().setAllowTF32CuDNN(tf32_); }

  // Ten pictures, one per class, with noise. Neighbouring pixels and colours are similar, as in photographs, so that
  // some of the whitening filters amplify.
  static Batch batch(int64_t count) {
    const at::Generator random = at::detail::createCPUGenerator(1);
    const at::Tensor pictures = at::randn({10, 1, 8, 8}, random).repeat_interleave(4, 2).repeat_interleave(4, 3);
    const at::Tensor targets = at::randint(0, 10, {count}, random, at::kLong);
    const at::Tensor images = pictures.index_select(0, targets) + 0.3 * at::randn({count, 3, 32, 32}, random);
    return {images.to(GetParam()), targets.to(GetParam())};
  }

  static std::shared_ptr<CifarCnn> model() {
    auto model = std::make_shared<CifarCnn>(kSmall, /*seed=*/3);
    model->to(at::Device(GetParam()));
    model->set_whitening(batch(50).inputs);
    return model;
  }

  static std::shared_ptr<CifarCnn> half_model() {
    auto half = model();
    EXPECT_TRUE(half->set_compute_type(at::kBFloat16));
    return half;
  }

 private:
  const bool tf32_ = at::globalContext().allowTF32CuDNN();
};

double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor right = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - right).norm() / right.norm()).item<double>();
}

at::Tensor round_to_half(const at::Tensor& x) { return x.to(at::kBFloat16).to(x.scalar_type()); }

// The model's training loss in float64, rounded to bfloat16 where cifar_cnn.h says so. The backward pass rounds at the
// same places.
at::Tensor rounded_loss(const CifarCnn& model, const Batch& batch) {
  const auto parameters = model.named_parameters();
  const auto exact = [&](const std::string& name) { return parameters[name].to(at::kDouble); };
  const auto convolve = [&](const at::Tensor& x, const std::string& name) {
    return round_to_half(at::conv2d(x, round_to_half(exact(name + ".weight")), {}, 1, /*padding=*/1));
  };
  const auto norm_and_gelu = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor normed = at::batch_norm(x, exact(name + ".weight"), exact(name + ".bias"), {}, {},
                                             /*training=*/true, 0, 1e-12, /*cudnn_enabled=*/false);
    return round_to_half(at::gelu(round_to_half(normed)));
  };
  at::Tensor x = at::conv2d(batch.inputs.to(at::kDouble), exact("whiten.weight"), exact("whiten.bias"));
  x = round_to_half(at::gelu(round_to_half(x)));
  for (const std::string group : {"layers.1", "layers.2", "layers.3"}) {
    x = norm_and_gelu(at::max_pool2d(convolve(x, group + ".conv1"), 2), group + ".norm1");
    x = norm_and_gelu(convolve(x, group + ".conv2"), group + ".norm2");
  }
  x = at::max_pool2d(x, 3).flatten(1);
  const at::Tensor logits = at::linear(x, exact("head.weight")) / static_cast<double>(model.options().widths[2]);
  return at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Mean, -100, kLabelSmoothing);
}

// Records inputs and weights of the convolutions that run during its life.
class ConvolutionWatch {
 public:
  ConvolutionWatch() {
    seen_.clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(remember).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~ConvolutionWatch() { at::removeCallback(handle_); }
  ConvolutionWatch(const ConvolutionWatch&) = delete;
  ConvolutionWatch& operator=(const ConvolutionWatch&) = delete;

  const std::vector<std::pair<at::Tensor, at::Tensor>>& seen() const { return seen_; }

 private:
  static std::unique_ptr<at::ObserverContext> remember(const at::RecordFunction& call) {
    if (std::string(call.name()) == "aten::conv2d") {
      seen_.emplace_back(call.inputs()[0].toTensor(), call.inputs()[1].toTensor());
    }
    return nullptr;
  }

  inline static std::vector<std::pair<at::Tensor, at::Tensor>> seen_;
  at::CallbackHandle handle_;
};

// Rounding moves activations by up to 2^-9 of themselves, so that in some pooling windows another entry becomes the
// largest and receives the gradient. This is most of the convolutions' distance from float32, 0.1 to 0.2; with mean
// pooling it is 0.01. So the distance is also compared with that of exact arithmetic which rounds at the same places.
// Over 12 seeds the ratio was 0.91 to 1.17 for matrices, 0.6 to 2.0 for vectors.
TEST_P(CifarCnnHalf, LossAndGradientsAgreeWithFloat32UpToRounding) {
  const auto exact = model(), half = half_model(), rounded = model();
  const Batch batch = this->batch(256);
  const at::Tensor expected = exact->loss(batch, kLabelSmoothing);
  const at::Tensor loss = half->loss(batch, kLabelSmoothing);
  expected.backward();
  loss.backward();
  rounded_loss(*rounded, batch).backward();
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(loss, expected), 1e-3);
  for (std::size_t i = 0; i < exact->layers().size(); ++i) {
    const auto [name, parameter, role, group] = half->layers()[i];
    const at::Tensor gradient = parameter.grad(), right = exact->layers()[i].parameter.grad();
    ASSERT_TRUE(gradient.defined()) << name;
    EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
    EXPECT_TRUE(parameter.is_contiguous() && gradient.is_contiguous()) << name;
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << name;
    const double distance = relative_error(gradient, right);
    EXPECT_LT(distance, role == Role::kHead ? 0.02 : role == Role::kConv ? 0.25 : 0.5) << name;
    const double usual = relative_error(rounded->layers()[i].parameter.grad(), right);
    EXPECT_LT(distance, role == Role::kVector ? 3 * usual + 0.02 : 1.4 * usual) << name;
  }
  const auto statistics = exact->named_buffers();
  for (const auto& entry : half->named_buffers()) {
    EXPECT_EQ(entry.value().scalar_type(), at::kFloat) << entry.key();
    EXPECT_LT(relative_error(entry.value(), statistics[entry.key()]), 3e-3) << entry.key();
  }
}

TEST_P(CifarCnnHalf, EvaluatesWithTheRunningStatistics) {
  const auto exact = model();
  const auto half = half_model();
  const Batch batch = this->batch(16);
  const at::NoGradGuard no_grad;
  exact->eval();
  half->eval();
  const at::Tensor logits = half->forward(batch.inputs);
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(logits, exact->forward(batch.inputs)), 0.02);
  EXPECT_TRUE(half->buffers()[0].equal(exact->buffers()[0]));
}

TEST_P(CifarCnnHalf, ConvolutionsTakeRoundedTensorsWithChannelsInnermost) {
  const auto half = half_model();
  const Batch batch = this->batch(4);
  const ConvolutionWatch watch;
  half->loss(batch, kLabelSmoothing);
  ASSERT_EQ(watch.seen().size(), 7u);
  EXPECT_TRUE(watch.seen()[0].first.equal(batch.inputs));  // whitening rounds nothing
  for (std::size_t i = 1; i < watch.seen().size(); ++i) {
    for (const at::Tensor& x : {watch.seen()[i].first, watch.seen()[i].second}) {
      EXPECT_TRUE(x.is_contiguous(at::MemoryFormat::ChannelsLast)) << i;
      EXPECT_TRUE(round_to_half(x).equal(x)) << i;
      EXPECT_EQ(x.scalar_type(), GetParam() == at::kCPU ? at::kFloat : at::kBFloat16) << i;
    }
  }
}

TEST_P(CifarCnnHalf, Float32DoesNotDependOnEarlierTypes) {
  const auto plain = model();
  const auto back = half_model();
  EXPECT_TRUE(back->set_compute_type(at::kFloat));
  const auto refused = half_model();
  EXPECT_FALSE(refused->set_compute_type(at::kHalf));
  const Batch batch = this->batch(8);
  const ConvolutionWatch watch;
  const at::Tensor loss = plain->loss(batch, kLabelSmoothing);
  ASSERT_EQ(watch.seen().size(), 7u);
  for (const auto& [input, weight] : watch.seen()) {
    EXPECT_EQ(input.scalar_type(), at::kFloat);
    const auto is_weight = [&weight = weight](const at::Tensor& x) { return x.is_same(weight); };
    const std::vector<at::Tensor> parameters = plain->parameters();
    EXPECT_TRUE(std::any_of(parameters.begin(), parameters.end(), is_weight));
  }
  EXPECT_TRUE(back->loss(batch, kLabelSmoothing).equal(loss));
  EXPECT_TRUE(refused->loss(batch, kLabelSmoothing).equal(loss));
}

TEST_P(CifarCnnHalf, UnscionLowersTheLoss) {
  const auto half = half_model();
  const Batch batch = this->batch(40);
  const std::vector<double> losses = losses_of_ten_steps(*half, batch, kLabelSmoothing);
  EXPECT_LT(losses.back(), 0.6 * losses.front());  // float32: 0.46
}

INSTANTIATE_TEST_SUITE_P(Devices, CifarCnnHalf, ::testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& device) { return c10::DeviceTypeName(device.param); });

}  // namespace
}  // namespace gluon::lab
