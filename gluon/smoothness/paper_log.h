// The authors' text logs of the paper's experiments.
//
//   step:50/5001 (24) L_estimated: 2.0423 norm_grad: 0.0258          NanoGPT
//   step:1 (0) L_estimated: 4237.2480 norm_grad: 8.9521              CNN
//
// is the sample Lhat = 2.0423, |g|* = 0.0258 of layer "24" at step 50. All other lines (losses, source code) are
// skipped. The logs do not record how the gradients were taken: the estimator is unknown.

#pragma once

#include <filesystem>

#include "gluon/smoothness/sample.h"

namespace gluon {

/// The samples of a log; layers are named "0", "1", ..., in the order of their first line, and have no group. A last
/// line without a line break may be incomplete and is skipped. Throws InputError on a bad number or a log without
/// samples.
Trajectory read_paper_log(const std::filesystem::path& path);

}  // namespace gluon
