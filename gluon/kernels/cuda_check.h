// Error checks for the files that launch kernels on a stream.

#pragma once

#include <cuda_runtime_api.h>

#include "gluon/core/check.h"

namespace gluon::kernels {

inline void check(cudaError_t error, const char* what) {
  GLUON_CHECK(error == cudaSuccess, "kernels: ", what, " failed: ", cudaGetErrorString(error));
}

/// Whether the stream is being captured into a graph.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace gluon::kernels
