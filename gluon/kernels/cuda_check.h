// What the files that put kernels on a stream share.

#pragma once

#include <cuda_runtime_api.h>

#include "gluon/core/check.h"

namespace gluon::kernels {

inline void check(cudaError_t error, const char* what) {
  GLUON_CHECK(error == cudaSuccess, "kernels: ", what, " failed: ", cudaGetErrorString(error));
}

/// Whether what is put on the stream goes into a graph.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace gluon::kernels
