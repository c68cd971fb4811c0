// NumberCopy: a number of the device on its way to the host, while the device goes on with what comes after it.

#pragma once

#include <torch/types.h>

#include <memory>

namespace gluon::lab {

class NumberCopy {
 public:
  /// Starts to copy a scalar, after what its device's current stream has to do so far. Its memory may be written to by
  /// whatever that stream gets next.
  explicit NumberCopy(const torch::Tensor& number);

  /// Waits until it has arrived.
  double value() const;

 private:
  struct Arrival;
  torch::Tensor host_;
  std::shared_ptr<Arrival> arrival_;  // null: it is there
};

}  // namespace gluon::lab
