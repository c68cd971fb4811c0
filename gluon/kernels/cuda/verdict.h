// The verdict on a step's gradients, made on the device by judge() of momentum.h and heeded there: the kernels that
// change something return at once where a gradient was not finite. The host need not wait for it.

#pragma once

namespace gluon::cuda {

inline constexpr int kAllFinite = 0x7f7f7f7f;

#ifdef __CUDACC__
__device__ inline bool left_out(const int* verdict) { return verdict != nullptr && *verdict != kAllFinite; }
#endif

}  // namespace gluon::cuda
