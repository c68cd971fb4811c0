// The verdict on a step's gradients, made on the device by judge() of momentum.h and heeded there: the kernels that
// change something return at once where a gradient was not finite. The host need not wait for it; it finds the verdict
// in its own memory, with the number of the judgement it belongs to.

#pragma once

#include <cstdint>

namespace gluon::cuda {

inline constexpr int kAllFinite = 0x7f7f7f7f;

/// In device memory, zero at first.
struct Verdict {
  int first_bad;        // matrix, or kAllFinite
  unsigned judgements;  // told so far
  unsigned blocks;      // that have finished the present one
};

#ifdef __CUDACC__
/// What judge() leaves in memory of the host: the judgement's number in the upper half, first_bad in the lower.
__device__ inline uint64_t verdict_report(unsigned judgement, int first_bad) {
  return static_cast<uint64_t>(judgement) << 32 | static_cast<uint32_t>(first_bad);
}

__device__ inline bool left_out(const Verdict* verdict) {
  return verdict != nullptr && verdict->first_bad != kAllFinite;
}
#endif

}  // namespace gluon::cuda
