#include "gluon/kernels/cuda/tensor_map.h"

#include <map>
#include <mutex>
#include <utility>

#include "gluon/kernels/cuda/tile_ring.cuh"

namespace gluon::cuda {
namespace {

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// Finds the driver's function without linking the driver, so that the library loads on machines without a GPU.
EncodeTensorMap find_encode_tensor_map() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTensorMap>(function)
                                                                      : nullptr;
}

// Prepares the kernel for its launches on the device, and counts the clusters that run at once.
cudaError_t find_clusters(const void* kernel, int device, int* clusters) {
  int major = 0;
  cudaFuncAttributes attributes;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess && major != 9) error = cudaErrorNotSupported;
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess && attributes.numRegs < tiles::kRegisters) error = cudaErrorInvalidKernelImage;
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles::kSharedBytes);
  }
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {tiles::kClusterBlocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = tiles::kClusterBlocks;
  config.blockDim = tiles::kThreads;
  config.dynamicSmemBytes = tiles::kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
  return error == cudaSuccess && *clusters < 1 ? cudaErrorNotSupported : error;
}

}  // namespace

cudaError_t make_tensor_map(const HalfView& view, CUtensorMap* map) {
  static const EncodeTensorMap encode = find_encode_tensor_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const bool aligned = reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % 8 == 0 &&
                       (view.count == 1 || view.matrix_stride % 8 == 0);
  if (view.data == nullptr || !aligned || view.row_stride < view.columns) return cudaErrorInvalidValue;
  const int64_t matrix_stride = view.count == 1 ? view.row_stride * view.rows : view.matrix_stride;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(view.columns), static_cast<cuuint64_t>(view.rows),
                              static_cast<cuuint64_t>(view.count)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(2 * view.row_stride),
                                static_cast<cuuint64_t>(2 * matrix_stride)};
  const cuuint32_t box[] = {64, 64, 1}, steps[] = {1, 1, 1};
  // A copy computes nothing, so the map serves bfloat16, too.
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(view.data), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t resident_clusters(const void* kernel, int* clusters) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int> known;  // by kernel and device
  const std::lock_guard lock(mutex);
  int& found = known[{kernel, device}];
  if (found == 0) error = find_clusters(kernel, device, &found);
  *clusters = found;
  return error;
}

}  // namespace gluon::cuda
