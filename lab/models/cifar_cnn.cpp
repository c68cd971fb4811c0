#include "lab/models/cifar_cnn.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

constexpr int64_t kPatch = 2;                              // side of a whitened patch
constexpr int64_t kPatchEntries = 3 * kPatch * kPatch;     // 12
constexpr int64_t kWhiteningChannels = 2 * kPatchEntries;  // 24
constexpr int64_t kSmallestSide = 25;                      // 24 = 2 * 2 * 2 * 3 after whitening
constexpr int64_t kLargestSide = 48;
constexpr double kNormEpsilon = 1e-12;
constexpr double kNewStatisticsShare = 1 - 0.6;
constexpr int64_t kImagesAtATime = 500;  // bounds the patches in memory: 46 MB

at::Tensor uniform(at::IntArrayRef sizes, int64_t fan_in, const at::Generator& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return at::empty(sizes).uniform_(-bound, bound, random);
}

// (out, in, 3, 3): the first `in` filters pass their own channel through, the others are random.
at::Tensor convolution_start(int64_t out, int64_t in, const at::Generator& random) {
  at::Tensor weight = uniform({out, in, 3, 3}, in * 9, random);
  const int64_t passing = std::min(out, in);
  weight.narrow(0, 0, passing).zero_();
  weight.select(3, 1).select(2, 1).narrow(0, 0, passing).narrow(1, 0, passing).fill_diagonal_(1);
  return weight;
}

// images (N, 3, H, W) -> every 2 x 2 patch as a row (N (H - 1) (W - 1), 12)
at::Tensor patches_of(const at::Tensor& images) {
  return images.unfold(2, kPatch, 1)
      .unfold(3, kPatch, 1)  // (N, 3, H - 1, W - 1, 2, 2)
      .permute({0, 2, 3, 1, 4, 5})
      .reshape({-1, kPatchEntries});
}

}  // namespace

class CifarCnn::Convolution : public torch::nn::Module {
 public:
  at::Tensor weight;  // (out, in, k, k)
  at::Tensor bias;    // (out) or undefined

  explicit Convolution(const at::Tensor& value) { weight = register_parameter("weight", value); }
  // Convolves in the type of x; a weight of another type is rounded first.
  at::Tensor operator()(const at::Tensor& x, int64_t padding) const {
    const auto convolve = [&](const at::Tensor& input, const at::Tensor& filters) {
      return at::conv2d(input, filters, bias, /*stride=*/1, padding);
    };
    if (x.scalar_type() == weight.scalar_type()) return convolve(x, weight);
    const at::Tensor rounded =
        weight.to(x.scalar_type(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
    if (!x.is_cpu()) return convolve(x, rounded);
    // A CPU without AVX-512 would sum gradients in bfloat16. float32 represents bfloat16 and its products exactly.
    return convolve(x.to(at::kFloat), rounded.to(at::kFloat)).to(x.scalar_type());
  }
};

class CifarCnn::BatchNorm : public torch::nn::Module {
 public:
  at::Tensor weight, bias, mean, variance;  // (channels) each

  explicit BatchNorm(int64_t channels) {
    weight = register_parameter("weight", at::ones({channels}), /*requires_grad=*/false);
    bias = register_parameter("bias", at::zeros({channels}));
    mean = register_buffer("running_mean", at::zeros({channels}));
    variance = register_buffer("running_var", at::ones({channels}));
  }
  at::Tensor operator()(const at::Tensor& x) const {
    return at::batch_norm(x, weight, bias, mean, variance, is_training(), kNewStatisticsShare, kNormEpsilon,
                          /*cudnn_enabled=*/false);
  }
};

class CifarCnn::Group : public torch::nn::Module {
 public:
  std::shared_ptr<Convolution> conv1, conv2;
  std::shared_ptr<BatchNorm> norm1, norm2;

  Group(int64_t in, int64_t out, const at::Generator& random) {
    conv1 = register_module("conv1", std::make_shared<Convolution>(convolution_start(out, in, random)));
    norm1 = register_module("norm1", std::make_shared<BatchNorm>(out));
    conv2 = register_module("conv2", std::make_shared<Convolution>(convolution_start(out, out, random)));
    norm2 = register_module("norm2", std::make_shared<BatchNorm>(out));
  }
  // x (B, in, H, W) -> (B, out, H / 2, W / 2)
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor pooled = at::gelu((*norm1)(at::max_pool2d((*conv1)(x, /*padding=*/1), 2)));
    return at::gelu((*norm2)((*conv2)(pooled, /*padding=*/1)));
  }
};

void CifarCnnOptions::validate() const {
  for (const int64_t width : widths) GLUON_CHECK(width > 0, "CifarCnn: widths must be > 0, got ", width);
  GLUON_CHECK(std::isfinite(whitening_eps) && whitening_eps >= 0,
              "CifarCnn: whitening_eps must be finite and >= 0, got ", whitening_eps);
  GLUON_CHECK(!scaling || (std::isfinite(*scaling) && *scaling > 0), "CifarCnn: scaling must be finite and > 0, got ",
              *scaling);
  GLUON_CHECK(classes > 0, "CifarCnn: classes must be > 0, got ", classes);
}

CifarCnn::CifarCnn(const CifarCnnOptions& options, uint64_t seed) : options_((options.validate(), options)) {
  const at::Generator random = at::detail::createCPUGenerator(seed);
  whiten_ = register_module(
      "whiten", std::make_shared<Convolution>(uniform({kWhiteningChannels, 3, kPatch, kPatch}, kPatchEntries, random)));
  whiten_->weight.set_requires_grad(false);
  whiten_->bias = whiten_->register_parameter("bias", uniform({kWhiteningChannels}, kPatchEntries, random));
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  int64_t channels = kWhiteningChannels;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i] = std::make_shared<Group>(channels, options_.widths[i], random);
    layers->register_module(std::to_string(i + 1), groups_[i]);  // airbench's layer 0 is the GELU
    channels = options_.widths[i];
  }
  const at::Tensor start = uniform({options_.classes, channels}, channels, random);
  const auto head = register_module("head", std::make_shared<torch::nn::Module>());
  // A single entry has no standard deviation and stays as it is.
  head_ = head->register_parameter("weight", start.numel() > 1 ? start / start.std() : start);
}

void CifarCnn::set_whitening(const at::Tensor& train_images) {
  GLUON_CHECK(train_images.dim() == 4 && train_images.size(0) > 0 && train_images.size(1) == 3 &&
                  train_images.size(2) >= kPatch && train_images.size(3) >= kPatch,
              "CifarCnn: expected training images (N, 3, H, W), got ", train_images.sizes());
  const at::NoGradGuard no_grad;
  at::Tensor moment = at::zeros({kPatchEntries, kPatchEntries}, at::kDouble);  // sum of p p^T
  int64_t count = 0;
  for (const at::Tensor& images : train_images.split(kImagesAtATime)) {
    const at::Tensor patches = patches_of(images).to(at::kDouble);
    moment += at::mm(patches.t(), patches).to(at::kCPU);
    count += patches.size(0);
  }
  GLUON_CHECK(at::isfinite(moment).all().item<bool>(), "CifarCnn: the training images hold NaN or Inf");
  const auto [lambda, vectors] = at::linalg_eigh(moment / count);  // (12) ascending, (12, 12): a column each
  const at::Tensor variance = lambda + options_.whitening_eps;
  GLUON_CHECK(variance[0].item<double>() > 0, "CifarCnn: the training images' patches span fewer than ", kPatchEntries,
              " dimensions; whitening them needs whitening_eps > 0, got ", options_.whitening_eps);
  const at::Tensor filters = (vectors / variance.sqrt()).t().reshape({-1, 3, kPatch, kPatch});  // (12, 3, 2, 2)
  whiten_->weight.copy_(at::cat({filters, -filters}));
}

at::Tensor CifarCnn::forward(const at::Tensor& images) {
  const auto fits = [](int64_t side) { return side >= kSmallestSide && side <= kLargestSide; };
  GLUON_CHECK(images.dim() == 4 && images.size(1) == 3 && fits(images.size(2)) && fits(images.size(3)),
              "CifarCnn: expected images (B, 3, H, W), ", kSmallestSide, " to ", kLargestSide, " pixels a side, got ",
              images.sizes());
  // Channels innermost: forward and backward take 0.8 of the time on the CPU.
  at::Tensor x = images.contiguous(at::MemoryFormat::ChannelsLast);
  x = (*whiten_)(x, /*padding=*/0);    // (B, 24, H - 1, W - 1)
  if (half_) x = x.to(at::kBFloat16);  // not before: whitening would amplify the rounding error
  x = at::gelu(x);
  for (const auto& group : groups_) x = (*group)(x);  // (B, widths[2], 3, 3)
  x = at::max_pool2d(x, 3).flatten(1);                // (B, widths[2])
  if (half_) x = x.to(head_.scalar_type());
  return at::linear(x, head_) * options_.scaling.value_or(1.0 / static_cast<double>(options_.widths[2]));
}

at::Tensor CifarCnn::loss(const Batch& batch, double label_smoothing) {
  GLUON_CHECK(label_smoothing >= 0 && label_smoothing < 1, "CifarCnn: label smoothing must be in [0, 1), got ",
              label_smoothing);
  GLUON_CHECK(batch.targets.dim() == 1 && batch.targets.size(0) == batch.inputs.size(0),
              "CifarCnn: expected one target per image, got inputs ", batch.inputs.sizes(), " and targets ",
              batch.targets.sizes());
  return at::cross_entropy_loss(forward(batch.inputs), batch.targets, /*weight=*/{}, at::Reduction::Mean,
                                /*ignore_index=*/-100, label_smoothing);
}

bool CifarCnn::set_compute_type(at::ScalarType type) {
  // Without cuDNN's bfloat16, ATen falls back to convolutions slower than float32's.
  half_ = type == at::kBFloat16 &&
          (!head_.is_cuda() || at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8());
  return half_ || type == at::kFloat;
}

std::vector<Layer> CifarCnn::layers() const {
  std::vector<Layer> layers;
  std::vector<Layer> norm_biases;
  for (const auto& parameter : named_parameters()) {
    if (!parameter.value().requires_grad() || parameter.key().rfind("layers.", 0) != 0) continue;
    const bool vector = parameter.value().dim() == 1;
    (vector ? norm_biases : layers)
        .push_back({parameter.key(), parameter.value(), vector ? Role::kVector : Role::kConv});
  }
  layers.push_back({"whiten.bias", whiten_->bias, Role::kVector});
  layers.insert(layers.end(), norm_biases.begin(), norm_biases.end());
  layers.push_back({"head.weight", head_, Role::kHead});
  return layers;
}

}  // namespace gluon::lab
