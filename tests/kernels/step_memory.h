// The device memory of an optimizer step over a few matrices, for the checks of its kernels.

#pragma once

#include "gluon/kernels/cuda/update.h"
#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {

inline constexpr float kBeta = 0.95F;

// Matrices that start `offset` entries past an aligned address with at least 8 entries between two, and the table of
// their addresses.
template <typename Pointer> class Table {
 public:
  Table(size_t count, size_t size, size_t offset)
      : count_(count),
        size_(size),
        stride_((size + 7) / 8 * 8 + 8),
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

// The device memory of an optimizer step over `count` matrices of `size` entries, and its kernels' arguments.
struct StepMemory {
  explicit StepMemory(size_t count, size_t size, size_t offset = 0)
      : gradients(count, size, offset),
        parameters(count, size, offset),
        momentum(count * size),
        radii(std::vector<float>(count, 0.01F)),
        output(count * size),
        gradient_squares(count * cuda::gradient_partials(size)),
        momentum_squares(count * cuda::momentum_partials(size)),
        scales(count),
        step{.count = static_cast<int64_t>(count),
             .size = static_cast<int64_t>(size),
             .gradients = gradients.data(),
             .momentum = momentum.data(),
             .weights = weights.data(),
             .gradient_squares = gradient_squares.data(),
             .momentum_squares = momentum_squares.data(),
             .scales = scales.data(),
             .output = output.data(),
             .verdict = verdict.data()},
        update{.parameters = parameters.data(), .radii = radii.data(), .decay = decay.data()} {}

  void measure_and_judge(cudaStream_t stream) const {
    require(cuda::measure_momentum(step, stream));
    require(cuda::measure_gradients({&step, 1}, stream));
    require(cuda::judge({&step, 1}, nullptr, stream));
  }
  void accumulate(cudaStream_t stream) const { require(cuda::accumulate_momentum({&step, 1}, stream)); }
  void move(cudaStream_t stream) const { require(cuda::update_parameters(step, output.data(), update, stream)); }
  void move_by_sign(cudaStream_t stream) const { require(cuda::update_by_sign(step, update, stream)); }

  Table<const float*> gradients;
  Table<float*> parameters;
  Array<float> momentum, weights{std::vector<float>{kBeta, 1 - kBeta}}, radii, decay{std::vector<float>{0}};
  Array<__half> output;  // of the momentum step, the input of the orthogonalizer
  Array<double> gradient_squares, momentum_squares;
  Array<cuda::ScalePair> scales;
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};  // skips every step until a judgement
  cuda::MomentumStep step;
  cuda::ParameterUpdate update;
};

/// Of step_factors_check.cu.
void check_step_factors();

}  // namespace gluon::kernel_check
