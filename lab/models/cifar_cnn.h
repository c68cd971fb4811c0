// CifarCnn: the convolutional network of the paper's CIFAR-10 experiments (airbench94).
//
//   x = gelu(conv2x2(images; whiten))                                    (B, 24, 31, 31)
//   x = gelu(norm2(conv3x3(gelu(norm1(max_pool2(conv3x3(x)))))))         three groups: (B, 64, 15, 15),
//                                                                        (B, 256, 7, 7), (B, 256, 3, 3)
//   logits = scaling * head(max_pool3(x))                                (B, classes)
//
// * whiten: frozen. Its 24 filters are the 12 eigenvectors v of the 2 x 2 patches' second moment E[p p^T], each
//   as v / sqrt(lambda + eps) and its negative: whitened patches are uncorrelated with mean square 1. Its bias is
//   trained.
// * norms: BatchNorm with weight frozen at 1, trained bias, eps 1e-12. The running statistics keep 0.6 of their
//   old value at every step: airbench's "momentum 0.6". Torch's momentum is the weight of the new value: 1 - 0.6 = 0.4.
// * convolutions: "same" padding, no bias; uniform in +-1/sqrt(fan in), but the first `in` filters pass their
//   channel through (dirac), so a group starts close to pooling.
// * head: no bias, entries of standard deviation 1; scaling = 1 / its input's width, as airbench does with Muon
//   and Scion. A step of radius t in the head's norm n |X|_max moves a logit by at most (t / n) max |x|.
//
// In half precision the six convolutions and the operations between them exchange bfloat16 tensors, channels innermost.
// Weights are rounded before each convolution; their gradients are float32, in the parameter's layout. Sums, norm
// arithmetic and statistics, whitening, head and loss are float32. float16 would need a scaled loss: the gradients of a
// mean over thousands of images leave its range.
// (paper: section "Training CNN on CIFAR-10")

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lab/models/model.h"

namespace gluon::lab {

struct CifarCnnOptions {
  std::array<int64_t, 3> widths{64, 256, 256};  // channels of the groups
  double whitening_eps = 5e-4;
  std::optional<double> scaling;  // of the logits; 1 / widths[2] when not given
  int64_t classes = 10;

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

class CifarCnn : public Model {
 public:
  /// The same seed gives the same parameters; no global random state is touched.
  explicit CifarCnn(const CifarCnnOptions& options = {}, uint64_t seed = 0);

  /// Computes the frozen filters from training images (N, 3, H, W), normalised but not augmented; airbench takes
  /// the first 5000. Call it before the first step. Throws InputError on other shapes, on values that are not
  /// finite, and on patches without 12 independent directions when whitening_eps is 0.
  void set_whitening(const torch::Tensor& train_images);

  /// Images (B, 3, H, W), 25 to 48 pixels a side -> logits (B, classes). After train() norms use the batch's
  /// statistics and update the running ones; after eval() they use the running ones.
  torch::Tensor forward(const torch::Tensor& images) override;

  /// Mean over the batch of the cross-entropy against (1 - s) [k = target] + s / classes.
  torch::Tensor loss(const Batch& batch, double label_smoothing) override;

  /// bfloat16 on the CPU (slow, for tests) and where cuDNN convolves in it, float32 everywhere. Also applies to
  /// forward(), whose logits stay float32. Call it when the model is on its device.
  bool set_compute_type(torch::ScalarType type) override;

  /// Convolutions, whitening bias, norm biases (vectors), head: the order of the authors' logs.
  std::vector<Layer> layers() const override;

  const CifarCnnOptions& options() const { return options_; }

 private:
  class Convolution;
  class BatchNorm;
  class Group;

  CifarCnnOptions options_;
  std::shared_ptr<Convolution> whiten_;  // weight (24, 3, 2, 2), bias (24)
  std::array<std::shared_ptr<Group>, 3> groups_;
  torch::Tensor head_;  // (classes, widths[2])
  bool half_ = false;   // whether the groups run in bfloat16
};

}  // namespace gluon::lab
