// The error check of files that launch kernels on a stream.

#pragma once

#include <cuda_runtime_api.h>

#include "gluon/core/check.h"

namespace gluon::kernels {

inline void check(cudaError_t error, const char* what) {
  GLUON_CHECK(error == cudaSuccess, "kernels: ", what, " failed: ", cudaGetErrorString(error));
}

}  // namespace gluon::kernels
