#include "gluon/kernels/cuda/symmetric_product.h"

#include <algorithm>
#include <vector>

#include "gluon/kernels/cuda/symmetric_product_kernel.cuh"

namespace gluon::cuda {
namespace {

using tiles::Arguments;
using tiles::Launch;
using tiles::Layout;
using tiles::Part;
using tiles::Segment;

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function without linking the driver, so that the library loads on machines without a GPU.
EncodeTensorMap find_encode_tensor_map() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<EncodeTensorMap>(function)
             : nullptr;
}

int blocks_of(int side) { return (side + tiles::kTileRows - 1) / tiles::kTileRows; }

struct Extents {
  int rows, columns;
};

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
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, stack.data, sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The launch's operands: each different view once.
class Operands {
 public:
  explicit Operands(Launch* launch) : launch_(launch) {}

  // The index of the view's map.
  cudaError_t find(const HalfStack& stack, int count, Extents extents, int8_t* index) {
    const View view{stack.data, stack.row_stride, stack.matrix_stride, count, extents.rows, extents.columns};
    const auto known = std::find(views_.begin(), views_.end(), view);
    *index = static_cast<int8_t>(known - views_.begin());
    if (known != views_.end()) return cudaSuccess;
    if (views_.size() == kMaxOperands) return cudaErrorInvalidValue;
    views_.push_back(view);
    return make_map(stack, count, extents.rows, extents.columns, &launch_->maps[*index]);
  }

 private:
  struct View {
    const void* data;
    int64_t row_stride, matrix_stride;
    int count, rows, columns;
    bool operator==(const View&) const = default;
  };

  Launch* launch_;
  std::vector<View> views_;
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

cudaError_t fill_arguments(const Product& product, Operands& all, Arguments* arguments) {
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
    int8_t* index;
    bool optional;
  } operands[] = {{product.a, shapes.a, &arguments->a, false},
                  {b, shapes.b, &arguments->b, false},
                  {product.c, shapes.c, &arguments->c, false},
                  {product.d, shapes.c, &arguments->d, true},
                  {product.e, shapes.c, &arguments->e, true}};
  for (const auto& [stack, extents, index, optional] : operands) {
    if (optional && stack.data == nullptr) continue;
    const cudaError_t error = all.find(stack, product.count, extents, index);
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

// Numbers the tiles. Where a chain ends with a symmetric product, the half tiles of its last matrices come at the very
// end: short tiles fill the end of the launch.
cudaError_t fill_segments(const Product* products, int product_count, int processors, Launch* launch) {
  const int room = static_cast<int>(std::size(launch->segment));
  std::vector<Segment> at_the_end;
  int used = 0;
  for (int i = 0; i < product_count; ++i) {
    const Arguments& arguments = launch->product[i];
    const int full = arguments.symmetric ? tiles::full_tiles(arguments.row_tiles) : arguments.tiles;
    const int half = arguments.tiles - full, count = products[i].count;
    const bool split = arguments.done == nullptr && half > 0 && full > 0;
    const int last = split ? std::min(count, (processors + half - 1) / half) : 0, most = count - last;
    if (used + 3 + static_cast<int>(at_the_end.size()) > room) return cudaErrorInvalidValue;
    if (most > 0) launch->segment[used++] = {most * arguments.tiles, i, 0, arguments.tiles, Part::kAll};
    if (last > 0) launch->segment[used++] = {last * full, i, most, full, Part::kFull};
    if (last > 0) at_the_end.push_back({last * half, i, most, half, Part::kHalf});
  }
  for (const Segment& segment : at_the_end) launch->segment[used++] = segment;
  for (int i = 0; i < used; ++i) launch->segment[i].end = launch->tiles += launch->segment[i].end;
  return cudaSuccess;
}

// Each product waits for the previous one of its chain.
cudaError_t link_chains(const Product* products, int product_count, int* progress, Launch* launch) {
  for (int i = 0; i < product_count; ++i) {
    int* done = progress;
    progress += products[i].count;
    for (int next = i + 1; next < product_count; ++next) {
      if (products[next].chain != products[i].chain) continue;
      if (products[next].count != products[i].count) return cudaErrorInvalidValue;
      launch->product[i].done = done;
      launch->product[next].wait_for = done;
      launch->product[next].wait_count = 2 * launch->product[i].tiles;  // two warpgroups
      break;
    }
  }
  return cudaSuccess;
}

}  // namespace

int product_partials(int side) {
  const int blocks = blocks_of(side);
  return 8 * (tiles::full_tiles(blocks) + (blocks + 1) / 2);
}

int64_t product_progress(const Product* products, int product_count) {
  int64_t count = 1;
  for (int i = 0; i < product_count; ++i) count += products[i].count;
  return count;
}

cudaError_t launch_products(const Product* products, int product_count, int* progress, cudaStream_t stream) {
  if (products == nullptr || progress == nullptr || product_count < 1 || product_count > kMaxProducts) {
    return cudaErrorInvalidValue;
  }
  int device = 0, major = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  if (major != 9) return cudaErrorNotSupported;

  Launch launch = {};
  launch.counter = progress;
  Operands operands(&launch);
  for (int i = 0; i < product_count && error == cudaSuccess; ++i) {
    error = fill_arguments(products[i], operands, &launch.product[i]);
  }
  if (error == cudaSuccess) error = link_chains(products, product_count, progress + 1, &launch);
  if (error == cudaSuccess) error = fill_segments(products, product_count, processors, &launch);
  if (error != cudaSuccess) return error;

  error = cudaFuncSetAttribute(tiles::multiply_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               tiles::kSharedBytes);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(progress, 0, sizeof(int) * product_progress(products, product_count), stream);
  if (error != cudaSuccess) return error;
  tiles::multiply_tiles<<<std::min(launch.tiles, processors), tiles::kThreads, tiles::kSharedBytes, stream>>>(
      launch);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
