// StepTiming: where the time of a training step went, in seconds.

#pragma once

namespace gluon::lab {

struct StepTiming {
  double forward = 0;    // including the data; with a CUDA graph also the backward pass
  double backward = 0;   // until the owners of the layers have the gradients of all ranks
  double optimizer = 0;  // until all ranks have the parameters
  double reference = 0;  // the extra evaluation for same_batch smoothness samples

  double total() const { return forward + backward + optimizer + reference; }
};

}  // namespace gluon::lab
