// Tensor maps: stacks of half precision matrices as Hopper's copy engine addresses them.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::cuda {

/// (count, rows, columns) entries of two bytes, rows contiguous. The address must be divisible by 16, both strides (in
/// entries) by 8; one matrix needs no matrix_stride.
struct HalfView {
  const void* data = nullptr;
  int64_t row_stride = 0, matrix_stride = 0;
  int count = 1, rows = 0, columns = 0;
  bool operator==(const HalfView&) const = default;
};

/// Makes the map for boxes of 64 x 64, swizzled as the tensor cores read them. cudaErrorInvalidValue if the view is not
/// as above, cudaErrorNotSupported if the driver is too old.
cudaError_t make_tensor_map(const HalfView& view, CUtensorMap* map);

/// How many clusters of a kernel on the tiles of tile_ring.cuh the current device runs at once, checked once for each
/// device. cudaErrorNotSupported unless its compute capability is 9.x, cudaErrorInvalidKernelImage if the kernel starts
/// with fewer registers than its warpgroups share (-G, --maxrregcount).
cudaError_t resident_clusters(const void* kernel, int* clusters);

}  // namespace gluon::cuda
