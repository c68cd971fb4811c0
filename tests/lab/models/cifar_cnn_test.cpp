#include "lab/models/cifar_cnn.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>

#include "tests/expect_error.h"
#include "tests/lab/models/training_checks.h"

namespace gluon::lab {
namespace {

const CifarCnnOptions kSmall{.widths = {2, 3, 4}, .classes = 5};

at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed));
}

Batch random_batch(int64_t size, int64_t side, int64_t classes) {
  return {random_tensor({size, 3, side, side}, 1),
          at::randint(0, classes, {size}, at::detail::createCPUGenerator(2), at::kLong)};
}

at::Tensor named(const torch::nn::Module& model, const std::string& name) {
  const auto parameters = model.named_parameters();
  const auto buffers = model.named_buffers();
  if (const auto* found = parameters.find(name)) return *found;
  if (const auto* found = buffers.find(name)) return *found;
  ADD_FAILURE() << "nothing called " << name;
  return {};
}

// Neighbouring pixels and colours are similar, as in photographs: patches are correlated.
at::Tensor smooth_images(int64_t count) {
  const at::Tensor coarse = random_tensor({count, 1, 8, 8}, 3).repeat_interleave(4, 2).repeat_interleave(4, 3);
  return coarse + 0.3 * random_tensor({count, 3, 32, 32}, 4) + 0.5;
}

TEST(CifarCnn, HasTheShapesOfThePaper) {
  CifarCnn model;
  model.eval();
  EXPECT_EQ(model.forward(random_tensor({2, 3, 32, 32}, 1)).sizes(), (at::IntArrayRef{2, 10}));
  EXPECT_EQ(model.forward(random_tensor({2, 3, 25, 48}, 1)).sizes(), (at::IntArrayRef{2, 10}));
  EXPECT_EQ(named(model, "whiten.weight").sizes(), (at::IntArrayRef{24, 3, 2, 2}));
  int64_t trainable = 0;
  for (const Layer& layer : model.layers()) trainable += layer.parameter.numel();
  EXPECT_EQ(trainable, 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256) + 24 + 2 * (64 + 256 + 256) + 10 * 256);
}

TEST(CifarCnn, LayersAreNamedAndOrderedAsTheAuthors) {
  const CifarCnn model;
  std::vector<std::string> got;
  for (const Layer& layer : model.layers()) {
    EXPECT_TRUE(layer.parameter.requires_grad()) << layer.name;
    got.push_back(std::string(role_name(layer.role)) + " " + layer.name);
  }
  EXPECT_EQ(got, (std::vector<std::string>{
                     "conv layers.1.conv1.weight", "conv layers.1.conv2.weight", "conv layers.2.conv1.weight",
                     "conv layers.2.conv2.weight", "conv layers.3.conv1.weight", "conv layers.3.conv2.weight",
                     "vector whiten.bias", "vector layers.1.norm1.bias", "vector layers.1.norm2.bias",
                     "vector layers.2.norm1.bias", "vector layers.2.norm2.bias", "vector layers.3.norm1.bias",
                     "vector layers.3.norm2.bias", "head head.weight"}));
  // Frozen: whitening filters and norm weights are parameters of the module, but not layers.
  EXPECT_FALSE(named(model, "whiten.weight").requires_grad());
  EXPECT_FALSE(named(model, "layers.2.norm1.weight").requires_grad());
}

TEST(CifarCnn, ConvolutionsStartByPassingTheirChannelsThrough) {
  const CifarCnn model({}, 1);
  const at::Tensor conv = named(model, "layers.1.conv1.weight");  // (64, 24, 3, 3)
  at::Tensor identity = at::zeros({24, 24, 3, 3});
  for (int64_t i = 0; i < 24; ++i) identity[i][i][1][1] = 1;
  EXPECT_TRUE(conv.narrow(0, 0, 24).equal(identity));
  const double bound = 1 / std::sqrt(24.0 * 9);
  EXPECT_LE(conv.narrow(0, 24, 40).abs().max().item<double>(), bound);
  EXPECT_GT(conv.narrow(0, 24, 40).abs().max().item<double>(), 0.99 * bound);
  EXPECT_NEAR(named(model, "head.weight").std().item<double>(), 1, 1e-5);
  EXPECT_TRUE(CifarCnn({}, 1).parameters()[0].equal(model.parameters()[0]));
  EXPECT_FALSE(CifarCnn({}, 2).parameters()[0].equal(model.parameters()[0]));
}

TEST(CifarCnn, WhitenedPatchesAreUncorrelatedWithVarianceOne) {
  CifarCnn model({.widths = {2, 3, 4}, .whitening_eps = 0});
  const at::Tensor images = smooth_images(600);  // more than one chunk
  model.set_whitening(images);
  const at::Tensor filters = named(model, "whiten.weight");
  const at::Tensor whitened = at::conv2d(images.to(at::kDouble), filters.to(at::kDouble))  // (N, 24, 31, 31)
                                  .transpose(0, 1)
                                  .reshape({24, -1});
  const at::Tensor half = whitened.narrow(0, 0, 12);
  const at::Tensor moment = at::mm(half, half.t()) / half.size(1);
  EXPECT_LT((moment - at::eye(12, at::kDouble)).abs().max().item<double>(), 1e-4);
  EXPECT_TRUE(filters.narrow(0, 12, 12).equal(-filters.narrow(0, 0, 12)));
}

TEST(CifarCnn, WhiteningEpsilonDampsSmallEigenvalues) {
  const double eps = 0.05;
  CifarCnn exact({.widths = {2, 3, 4}, .whitening_eps = 0}), damped({.widths = {2, 3, 4}, .whitening_eps = eps});
  const at::Tensor images = smooth_images(20);
  exact.set_whitening(images);
  damped.set_whitening(images);
  // Without eps a filter has squared length 1 / lambda, with it 1 / (lambda + eps).
  const auto lengths = [](const CifarCnn& model) {
    return named(model, "whiten.weight").narrow(0, 0, 12).square().sum({1, 2, 3}).to(at::kDouble);
  };
  EXPECT_TRUE(at::allclose(1 / lengths(damped), 1 / lengths(exact) + eps, 1e-4));
}

TEST(CifarCnn, NormsUseTheBatchInTrainingAndKeepSixTenthsOfTheOldStatistics) {
  CifarCnn model(kSmall);
  const at::Tensor images = random_tensor({8, 3, 32, 32}, 5);
  const at::Tensor x =  // the input of the first norm: (8, 2, 15, 15)
      at::max_pool2d(
          at::conv2d(at::gelu(at::conv2d(images, named(model, "whiten.weight"), named(model, "whiten.bias"))),
                     named(model, "layers.1.conv1.weight"), {}, 1, 1),
          2);
  const at::Tensor logits = model.forward(images);
  const at::Tensor mean = named(model, "layers.1.norm1.running_mean");
  const at::Tensor variance = named(model, "layers.1.norm1.running_var");
  EXPECT_TRUE(at::allclose(mean, 0.4 * x.mean({0, 2, 3}), 1e-4, 1e-6));
  EXPECT_TRUE(at::allclose(variance, 0.6 + 0.4 * x.var({0, 2, 3}, /*unbiased=*/true), 1e-4, 1e-6));

  model.eval();
  const at::Tensor kept = mean.clone();
  EXPECT_FALSE(at::allclose(model.forward(images), logits));
  EXPECT_TRUE(mean.equal(kept));
  EXPECT_TRUE(model.forward(images)[3].allclose(model.forward(images.narrow(0, 3, 1))[0], 1e-4, 1e-6));
}

TEST(CifarCnn, LogitsAreDividedByTheWidthOfTheHeadByDefault) {
  CifarCnn usual(kSmall, 3), plain({.widths = {2, 3, 4}, .scaling = 1, .classes = 5}, 3);
  const at::Tensor images = random_tensor({4, 3, 32, 32}, 6);
  EXPECT_TRUE(at::allclose(4 * usual.forward(images), plain.forward(images), 1e-5, 1e-7));
}

TEST(CifarCnn, LabelSmoothingMixesTheTargetWithAUniformDistribution) {
  CifarCnn model(kSmall);
  const Batch batch = random_batch(6, 32, 5);
  const at::Tensor log_p = at::log_softmax(model.forward(batch.inputs), -1);  // (6, 5)
  const at::Tensor wanted = 0.8 * at::one_hot(batch.targets, 5) + 0.2 / 5;
  EXPECT_NEAR(model.loss(batch, 0.2).item<double>(), -(wanted * log_p).sum(1).mean().item<double>(), 1e-5);
}

TEST(CifarCnn, GradientsMatchFiniteDifferences) {
  CifarCnn model({.widths = {2, 3, 2}, .scaling = 1, .classes = 3}, 4);
  Batch batch = random_batch(3, 25, 3);
  model.set_whitening(batch.inputs);
  model.to(at::kDouble);
  batch.inputs = batch.inputs.to(at::kDouble);
  expect_gradients(model, batch, 0.2);
  EXPECT_FALSE(named(model, "whiten.weight").grad().defined());
}

TEST(CifarCnn, UnscionLowersTheLoss) {
  CifarCnn model({.widths = {8, 16, 16}}, 5);
  Batch batch = random_batch(20, 32, 10);
  model.set_whitening(batch.inputs);
  const at::Tensor frozen = named(model, "whiten.weight").clone();
  const std::vector<double> losses = losses_of_ten_steps(model, batch, 0.2);
  EXPECT_NEAR(losses.front(), std::log(10.0), 0.2);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_TRUE(named(model, "whiten.weight").equal(frozen));
}

TEST(CifarCnn, ErrorsSayWhatWasReceived) {
  EXPECT_INPUT_ERROR(CifarCnn({.widths = {64, 0, 256}}), "CifarCnn: widths must be > 0, got 0");
  EXPECT_INPUT_ERROR(CifarCnn({.whitening_eps = -1}), "CifarCnn: whitening_eps must be finite and >= 0, got -1");
  EXPECT_INPUT_ERROR(CifarCnn({.scaling = 0}), "CifarCnn: scaling must be finite and > 0, got 0");
  EXPECT_INPUT_ERROR(CifarCnn({.classes = 0}), "CifarCnn: classes must be > 0, got 0");

  CifarCnn model(kSmall);
  EXPECT_INPUT_ERROR(model.set_whitening(at::zeros({0, 3, 32, 32})),
                     "CifarCnn: expected training images (N, 3, H, W), got [0, 3, 32, 32]");
  EXPECT_INPUT_ERROR(model.set_whitening(at::full({1, 3, 32, 32}, std::numeric_limits<float>::infinity())),
                     "CifarCnn: the training images hold NaN or Inf");
  CifarCnn no_eps({.widths = {2, 3, 4}, .whitening_eps = 0});
  EXPECT_INPUT_ERROR(no_eps.set_whitening(at::zeros({1, 3, 32, 32})),
                     "CifarCnn: the training images' patches span fewer than 12 dimensions; whitening them needs "
                     "whitening_eps > 0, got 0");
  EXPECT_INPUT_ERROR(model.forward(at::zeros({1, 1, 32, 32})),
                     "CifarCnn: expected images (B, 3, H, W), 25 to 48 pixels a side, got [1, 1, 32, 32]");
  EXPECT_INPUT_ERROR(model.forward(at::zeros({1, 3, 32, 24})), "25 to 48 pixels a side, got [1, 3, 32, 24]");
  EXPECT_INPUT_ERROR(model.forward(at::zeros({1, 3, 49, 32})), "25 to 48 pixels a side, got [1, 3, 49, 32]");
  const Batch batch = random_batch(4, 32, 5);
  EXPECT_INPUT_ERROR(model.loss({batch.inputs, batch.targets.narrow(0, 0, 3)}, 0),
                     "CifarCnn: expected one target per image, got inputs [4, 3, 32, 32] and targets [3]");
  EXPECT_INPUT_ERROR(model.loss(batch, -0.5), "CifarCnn: label smoothing must be in [0, 1), got -0.5");
}

}  // namespace
}  // namespace gluon::lab
