// Models to test, checks of their gradients, and of the loss while they train.

#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "lab/models/model.h"

namespace gluon::lab {

/// Fills the projections of a language model, which start as zero: only then do its blocks affect the result.
inline void fill_projections(Model& model, double size) {
  const at::NoGradGuard no_grad;
  const at::Generator random = at::detail::createCPUGenerator(7);
  for (const Layer& layer : model.layers()) {
    if (layer.name.find("c_proj") == std::string::npos) continue;
    layer.parameter.copy_(size * at::randn(layer.parameter.sizes(), random));
  }
}

/// Compares every entry of every trainable parameter's gradient with central differences, in float64.
inline void expect_gradients(Model& model, const Batch& batch, double label_smoothing) {
  constexpr double kStep = 1e-6;
  model.zero_grad();
  model.loss(batch, label_smoothing).backward();
  const at::NoGradGuard no_grad;
  for (const Layer& layer : model.layers()) {
    ASSERT_TRUE(layer.parameter.grad().defined()) << layer.name;
    const at::Tensor gradient = layer.parameter.grad().contiguous();
    double* entries = layer.parameter.data_ptr<double>();
    const double scale = gradient.abs().max().item<double>();
    EXPECT_GT(scale, 0) << layer.name;
    for (int64_t i = 0; i < gradient.numel(); ++i) {
      const double entry = entries[i];
      entries[i] = entry + kStep;
      const double above = model.loss(batch, label_smoothing).item<double>();
      entries[i] = entry - kStep;
      const double below = model.loss(batch, label_smoothing).item<double>();
      entries[i] = entry;
      const double got = gradient.data_ptr<double>()[i];
      ASSERT_NEAR(got, (above - below) / (2 * kStep), 1e-5 * std::abs(got) + 1e-6 * scale + 1e-9)
          << layer.name << " entry " << i;
    }
  }
}

/// The losses of ten unscion steps on the same batch, each before its step.
inline std::vector<double> losses_of_ten_steps(Model& model, const Batch& batch, double label_smoothing) {
  Optimizer optimizer(model.layers(), presets::unscion());
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    const at::Tensor loss = model.loss(batch, label_smoothing);
    losses.push_back(loss.item<double>());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return losses;
}

}  // namespace gluon::lab
