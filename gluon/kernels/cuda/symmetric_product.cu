#include "gluon/kernels/cuda/symmetric_product.h"

#include <algorithm>

#include "gluon/kernels/cuda/symmetric_product_kernel.cuh"

namespace gluon::cuda {
namespace {

using tiles::Arguments;
using tiles::Launch;
using tiles::Layout;
using tiles::Segment;

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function without linking the driver, so that the library loads on machines without a GPU.
EncodeTensorMap find_encode_tensor_map() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                             cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<EncodeTensorMap>(function)
             : nullptr;
}

int blocks_of(int side) { return (side + tiles::kTileRows - 1) / tiles::kTileRows; }

// A view of (count, rows, columns) in boxes of 64 x 64, swizzled as the tensor cores read them.
cudaError_t make_map(const HalfStack& stack, int count, int rows, int columns, CUtensorMap* map) {
  static const EncodeTensorMap encode = find_encode_tensor_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const bool aligned = reinterpret_cast<uintptr_t>(stack.data) % 16 == 0 && stack.row_stride % 8 == 0 &&
                       stack.matrix_stride % 8 == 0;
  if (stack.data == nullptr || !aligned || stack.row_stride < columns) return cudaErrorInvalidValue;
  const int64_t matrix_stride = count == 1 ? stack.row_stride * rows : stack.matrix_stride;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(2 * stack.row_stride),
                                static_cast<cuuint64_t>(2 * matrix_stride)};
  const cuuint32_t box[] = {64, 64, 1}, steps[] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, stack.data, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

struct Extents {
  int rows, columns;
};

struct Shapes {
  Extents a, b, c;
  int depth;
};

Shapes shapes_of(const Product& product) {
  const int m = product.rows, n = product.columns;
  switch (product.kind) {
    case ProductKind::kRowGram:
      return {{m, n}, {m, n}, {m, m}, n};
    case ProductKind::kColumnGram:
      return {{m, n}, {m, n}, {n, n}, m};
    case ProductKind::kSymmetric:
      return {{m, m}, {m, m}, {m, m}, m};
    case ProductKind::kLeft:
      return {{m, m}, {m, n}, {m, n}, m};
    default:
      return {{m, n}, {n, n}, {m, n}, n};
  }
}

cudaError_t fill_arguments(const Product& product, Arguments* arguments) {
  const bool gram = product.kind == ProductKind::kRowGram || product.kind == ProductKind::kColumnGram;
  const bool symmetric = gram || product.kind == ProductKind::kSymmetric;
  const bool no_columns = product.kind != ProductKind::kSymmetric && product.columns <= 0;
  if (product.count <= 0 || product.rows <= 0 || no_columns) return cudaErrorInvalidValue;
  if ((product.squares != nullptr && !gram) || (product.e.data != nullptr && product.d.data == nullptr)) {
    return cudaErrorInvalidValue;
  }
  const Shapes shapes = shapes_of(product);
  const HalfStack& b = gram ? product.a : product.b;
  const struct {
    const HalfStack& stack;
    Extents extents;
    CUtensorMap* map;
    bool optional;
  } operands[] = {{product.a, shapes.a, &arguments->a, false},
                  {b, shapes.b, &arguments->b, false},
                  {product.c, shapes.c, &arguments->c, false},
                  {product.d, shapes.c, &arguments->d, true},
                  {product.e, shapes.c, &arguments->e, true}};
  for (const auto& [stack, extents, map, optional] : operands) {
    if (optional && stack.data == nullptr) continue;
    const cudaError_t error = make_map(stack, product.count, extents.rows, extents.columns, map);
    if (error != cudaSuccess) return error;
  }
  arguments->layout = product.kind == ProductKind::kColumnGram ? Layout::kAcrossDepth
                      : product.kind == ProductKind::kLeft     ? Layout::kMixed
                                                               : Layout::kAlongDepth;
  arguments->depth_tiles = (shapes.depth + tiles::kDepth - 1) / tiles::kDepth;
  arguments->addends = (product.d.data != nullptr) + (product.e.data != nullptr);
  arguments->symmetric = symmetric;
  arguments->shared_operand = symmetric && b.data == product.a.data;
  arguments->row_tiles = blocks_of(shapes.c.rows);
  arguments->column_tiles = (shapes.c.columns + tiles::kTileColumns - 1) / tiles::kTileColumns;
  arguments->tiles = symmetric ? tiles::full_tiles(arguments->row_tiles) + (arguments->row_tiles + 1) / 2
                               : arguments->row_tiles * arguments->column_tiles;
  arguments->alpha = product.alpha;
  arguments->beta = product.beta;
  arguments->gamma = product.gamma;
  arguments->alpha_power = product.alpha_power;
  arguments->addend_power = product.addend_power;
  arguments->bound = product.bound;
  arguments->bound_partials = product.bound == nullptr ? 0 : product_partials(product.bound_side);
  arguments->safety = product.safety;
  arguments->squares = product.squares;
  return cudaSuccess;
}

// Longest tiles first, so that the short ones fill the end of the launch.
void fill_segments(const Product* products, int product_count, Launch* launch) {
  int used = 0;
  for (int i = 0; i < product_count; ++i) {
    const Arguments& arguments = launch->product[i];
    const int full = arguments.symmetric ? tiles::full_tiles(arguments.row_tiles) : arguments.tiles;
    const int half = arguments.tiles - full;
    if (full > 0) launch->segment[used++] = {full * products[i].count, i, false, full};
    if (half > 0) launch->segment[used++] = {half * products[i].count, i, true, half};
  }
  const auto cost = [&](const Segment& segment) {
    return (segment.half ? 1 : 2) * launch->product[segment.product].depth_tiles;
  };
  std::stable_sort(launch->segment, launch->segment + used,
                   [&](const Segment& x, const Segment& y) { return cost(x) > cost(y); });
  launch->tiles = 0;
  for (int i = 0; i < used; ++i) {
    launch->tiles += launch->segment[i].end;
    launch->segment[i].end = launch->tiles;
  }
}

}  // namespace

int product_partials(int side) {
  const int blocks = blocks_of(side);
  return 8 * (tiles::full_tiles(blocks) + (blocks + 1) / 2);
}

cudaError_t launch_products(const Product* products, int product_count, int* counter, bool overlap_previous,
                            cudaStream_t stream) {
  if (products == nullptr || product_count < 1 || product_count > kMaxProducts) return cudaErrorInvalidValue;
  int device = 0, major = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  if (major != 9) return cudaErrorNotSupported;

  Launch launch = {};
  for (int i = 0; i < product_count; ++i) {
    error = fill_arguments(products[i], &launch.product[i]);
    if (error != cudaSuccess) return error;
  }
  fill_segments(products, product_count, &launch);
  launch.counter = counter;

  error = cudaFuncSetAttribute(tiles::multiply_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               tiles::kSharedBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(std::min(launch.tiles, processors));
  config.blockDim = dim3(tiles::kThreads);
  config.dynamicSmemBytes = tiles::kSharedBytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = overlap_previous ? 1 : 0;
  return cudaLaunchKernelEx(&config, tiles::multiply_tiles, launch);
}

}  // namespace gluon::cuda
