// expect_gradients(): every entry of every trainable parameter against central differences, in float64.

#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/models/model.h"

namespace gluon::lab {

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

}  // namespace gluon::lab
