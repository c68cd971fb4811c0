// The verdict on a step's gradients. judge() of momentum.h writes it on the device, where the kernels that change
// anything read it and return at once if a gradient was not finite. The host need not wait: judge() also reports the
// verdict to host memory, with the number of the judgement it belongs to.

#pragma once

#include <cstdint>

namespace gluon::cuda {

inline constexpr int kAllFinite = 0x7f7f7f7f;

/// In device memory; zero before the first judgement.
struct Verdict {
  int first_bad;        // matrix, or kAllFinite
  unsigned judgements;  // reported so far
  unsigned blocks;      // of the current judgement that have finished
};

#ifdef __CUDACC__
/// What judge() writes to host memory: the judgement's number in the upper half, first_bad in the lower.
__device__ inline uint64_t verdict_report(unsigned judgement, int first_bad) {
  return static_cast<uint64_t>(judgement) << 32 | static_cast<uint32_t>(first_bad);
}

__device__ inline bool skips_step(const Verdict* verdict) {
  return verdict != nullptr && verdict->first_bad != kAllFinite;
}
#endif

}  // namespace gluon::cuda
