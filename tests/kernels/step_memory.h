// The device memory of an optimizer step over `count` matrices of `size` entries, and its kernels' arguments.

#pragma once

#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/sign_update.h"
#include "gluon/kernels/cuda/update.h"
#include "tests/kernels/device_array.h"

namespace gluon::kernel_check {

inline constexpr float kBeta = 0.95F;

/// Matrices that start `offset` entries past an aligned address with at least `gap` entries between two, and the table
/// of their addresses.
template <typename Pointer> class Table {
 public:
  Table(size_t count, size_t size, size_t offset, size_t gap)
      : count_(count),
        size_(size),
        stride_((size + 7) / 8 * 8 + gap),
        entries_(count * stride_, offset),
        pointers_(count) {
    std::vector<Pointer> addresses;
    for (size_t i = 0; i < count; ++i) addresses.push_back(entries_.data() + i * stride_);
    pointers_.set(addresses);
  }

  Pointer* data() const { return pointers_.data(); }
  Array<float>& entries() { return entries_; }

  void set(const std::vector<float>& values) {
    std::vector<float> spread(entries_.size(), NAN);
    for (size_t i = 0; i < values.size(); ++i) spread[place_of(i)] = values[i];
    entries_.set(spread);
  }
  std::vector<float> get() const {
    const std::vector<float> spread = entries_.get();
    std::vector<float> values;
    for (size_t i = 0; i < count_ * size_; ++i) values.push_back(spread[place_of(i)]);
    return values;
  }

 private:
  size_t place_of(size_t i) const { return i / size_ * stride_ + i % size_; }

  size_t count_, size_, stride_;
  Array<float> entries_;
  Array<Pointer> pointers_;
};

struct StepMemory {
  explicit StepMemory(size_t count, size_t size, size_t offset = 0, size_t gap = 8)
      : count(static_cast<int64_t>(count)),
        size(static_cast<int64_t>(size)),
        gradients(count, size, offset, gap),
        parameters(count, size, offset, gap),
        momentum(count * size),
        radii(std::vector<float>(count, 0.01F)),
        output(count * size),
        gradient_squares(count * cuda::gradient_partials(size)),
        momentum_squares(count * cuda::momentum_partials(size)),
        scales(count) {}

  cuda::MomentumStep momentum_step(bool nesterov = false) const {
    return {.count = count,
            .size = size,
            .nesterov = nesterov,
            .gradients = gradients.data(),
            .momentum = momentum.data(),
            .weights = weights.data(),
            .gradient_squares = gradient_squares.data(),
            .momentum_squares = momentum_squares.data(),
            .scales = scales.data(),
            .output = output.data()};
  }
  cuda::ParameterUpdate parameter_update() const {
    return {.count = count,
            .size = size,
            .parameters = parameters.data(),
            .directions = output.data(),
            .radii = radii.data()};
  }
  cuda::SignUpdate sign_update(bool nesterov = false) const {
    return {.count = count,
            .size = size,
            .nesterov = nesterov,
            .gradients = gradients.data(),
            .momentum = momentum.data(),
            .weights = weights.data(),
            .parameters = parameters.data(),
            .radii = radii.data()};
  }

  int64_t count, size;
  Table<const float*> gradients;
  Table<float*> parameters;
  Array<float> momentum, weights{std::vector<float>{kBeta, 1 - kBeta}}, radii;
  Array<__half> output;  // of the momentum step, the input of the orthogonalizer
  Array<double> gradient_squares, momentum_squares;
  Array<cuda::ScalePair> scales;
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
};

}  // namespace gluon::kernel_check
