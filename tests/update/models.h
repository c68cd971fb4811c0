// Small sets of layers for the optimizer's tests: every role, several shapes, deterministic values.

#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string>
#include <vector>

#include "gluon/update/optimizer.h"

namespace gluon {

inline at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), type);
}

/// Layers of a transformer (tied embedding) or of a CNN, float64 unless said otherwise.
inline std::vector<Layer> transformer_layers(at::ScalarType type = at::kDouble) {
  return {{"wte.weight", random_tensor({20, 6}, 1, type), Role::kEmbedding},
          {"blocks.0.qkv.weight", random_tensor({18, 6}, 2, type), Role::kHidden},
          {"blocks.0.proj.weight", random_tensor({6, 6}, 3, type), Role::kHidden},
          {"blocks.1.proj.weight", random_tensor({6, 6}, 4, type), Role::kHidden},
          {"experts.weight", random_tensor({3, 6, 12}, 5, type), Role::kHidden},
          {"ln.weight", random_tensor({6}, 6, type), Role::kVector},
          {"temperature", random_tensor({}, 7, type), Role::kScalar}};
}

inline std::vector<Layer> cnn_layers(at::ScalarType type = at::kDouble) {
  return {{"conv1.weight", random_tensor({8, 3, 3, 3}, 1, type), Role::kConv},
          {"conv2.weight", random_tensor({8, 8, 3, 3}, 2, type), Role::kConv},
          {"norm.bias", random_tensor({8}, 3, type), Role::kVector},
          {"head.weight", random_tensor({10, 8}, 4, type), Role::kHead}};
}

/// 1/2 sum_i |X_i - A_i|^2 with A_i fixed by the layer's place; sets the gradients.
inline double quadratic_loss(std::vector<Layer>& layers) {
  double loss = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    at::Tensor& x = layers[i].parameter;
    const at::Tensor difference = x - random_tensor(x.sizes(), 100 + i, x.scalar_type());
    x.mutable_grad() = difference;
    loss += 0.5 * difference.to(at::kDouble).square().sum().item<double>();
  }
  return loss;
}

inline void train(Optimizer& optimizer, std::vector<Layer>& layers, int steps = 1) {
  for (int step = 0; step < steps; ++step) {
    quadratic_loss(layers);
    optimizer.step();
  }
}

/// Exact orthogonalization, and no warnings.
inline OptimizerOptions quiet(std::optional<Momentum> momentum = std::nullopt) {
  return {.momentum = momentum, .orthogonalizer = "svd", .warn = [](const std::string&) {}};
}

inline std::vector<at::Tensor> copies_of(const std::vector<Layer>& layers) {
  std::vector<at::Tensor> copies;
  for (const Layer& layer : layers) copies.push_back(layer.parameter.clone());
  return copies;
}

inline bool bitwise_equal(const std::vector<Layer>& layers, const std::vector<at::Tensor>& expected) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].parameter.equal(expected[i])) return false;
  }
  return true;
}

}  // namespace gluon
