// The error check of files that launch kernels on a stream.

#pragma once

#include <cuda_runtime_api.h>

#include "gluon/core/check.h"

namespace gluon::kernels {

/// What an error that the kernels' own checks return means there, beside CUDA's words.
inline const char* meaning(cudaError_t error) {
  switch (error) {
    case cudaErrorNotSupported:
      return "; this kernel needs compute capability 9.0 (H100, H200) and a driver for CUDA 12";
    case cudaErrorInvalidKernelImage:
      return "; the kernels were built with too few registers per thread: leave out -G and --maxrregcount";
    case cudaErrorCooperativeLaunchTooLarge:
      return "; all blocks of a product must run at once, and this process may use too few multiprocessors (MPS?)";
    default: return "";
  }
}

inline void check(cudaError_t error, const char* what) {
  GLUON_CHECK(error == cudaSuccess, "kernels: ", what, " failed: ", cudaGetErrorString(error), meaning(error));
}

}  // namespace gluon::kernels
