#include "gluon/kernels/cuda/symmetric_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gluon/kernels/cuda/symmetric_product_kernel.cuh"

namespace gluon::cuda {
namespace {

using tiles::Arguments;
using tiles::Launch;
using tiles::Layout;

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

int tiles_of(int side) { return (side + tiles::kTile - 1) / tiles::kTile; }

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
  if (product.count <= 0 || product.count > tiles::kMaxMatrices || product.rows <= 0 || no_columns) {
    return cudaErrorInvalidValue;
  }
  if ((product.squares != nullptr && !gram) ||
      (product.identity != 0 && (!symmetric || product.squares != nullptr))) {
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
                  {product.d, shapes.c, &arguments->d, true}};
  for (const auto& [stack, extents, index, optional] : operands) {
    if (optional && stack.data == nullptr) continue;
    const cudaError_t error = all.find(stack, product.count, extents, index);
    if (error != cudaSuccess) return error;
  }
  arguments->layout = product.kind == ProductKind::kColumnGram ? Layout::kAcrossDepth
                      : product.kind == ProductKind::kLeft     ? Layout::kMixed
                                                               : Layout::kAlongDepth;
  arguments->depth_tiles = (shapes.depth + tiles::kDepth - 1) / tiles::kDepth;
  arguments->has_addend = product.d.data != nullptr;
  arguments->symmetric = symmetric;
  arguments->shared_operand = symmetric && b.data == product.a.data;
  arguments->row_tiles = tiles_of(shapes.c.rows);
  arguments->column_tiles = tiles_of(shapes.c.columns);
  arguments->tiles =
      symmetric ? tiles::lower_tiles(arguments->row_tiles) : arguments->row_tiles * arguments->column_tiles;
  arguments->alpha = product.alpha;
  arguments->beta = product.beta;
  arguments->identity = product.identity;
  arguments->alpha_power = product.alpha_power;
  arguments->addend_power = product.addend_power;
  arguments->bound = product.bound;
  arguments->bound_partials = product.bound == nullptr ? 0 : product_partials(product.bound_side);
  arguments->safety = product.safety;
  arguments->squares = product.squares;
  arguments->rows = product.rows;
  arguments->columns = product.columns;
  arguments->targets = product.target.matrices;
  arguments->radii = product.target.radii;
  arguments->target_factor = product.target.factor;
  arguments->verdict = product.target.verdict;
  const bool wrong_target = symmetric || product.columns % 64 != 0 || product.target.radii == nullptr;
  return product.target.matrices != nullptr && wrong_target ? cudaErrorInvalidValue : cudaSuccess;
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
      launch->product[next].wait_count = 4 * launch->product[i].tiles;  // four warpgroups
      break;
    }
  }
  return cudaSuccess;
}

// Some neighbouring matrices of a chain on their way through its products.
struct Group {
  std::vector<int> products;
  int first, count;
  std::size_t next = 0;
};

// Groups on their way at a time, and how many rounds of all clusters each of their products takes at least: few enough
// for a product to find in the L2 cache what the one before it wrote, enough for a group not to wait for itself. Seen on
// an H200, beside whole products one after another: 144 matrices of 2048 x 2048 and 2048 x 8192 take 51 instead of
// 56 ms, those of 768 x 768 and 768 x 3072 the same.
constexpr std::size_t kWindow = 5;
constexpr double kRounds = 0.75;

std::vector<Group> make_groups(const Product* products, int product_count, double blocks,
                               const Launch& launch) {
  std::vector<Group> groups;
  std::vector<int> chains;
  for (int i = 0; i < product_count; ++i) {
    if (std::find(chains.begin(), chains.end(), products[i].chain) != chains.end()) continue;
    chains.push_back(products[i].chain);
    std::vector<int> chain;
    int fewest = launch.product[i].tiles;
    for (int j = i; j < product_count; ++j) {
      if (products[j].chain != products[i].chain) continue;
      chain.push_back(j);
      fewest = std::min(fewest, launch.product[j].tiles);
    }
    const int size = std::max(1, static_cast<int>(std::ceil(blocks / fewest)));
    const int parts = (products[i].count + size - 1) / size;
    for (int part = 0, first = 0; part < parts; ++part) {
      const int count = (products[i].count - first) / (parts - part);
      groups.push_back({chain, first, count});
      first += count;
    }
  }
  return groups;
}

// Numbers the tiles: the groups of the window take turns, a product each.
void fill_segments(const Product* products, int product_count, int clusters, Launch* launch) {
  std::vector<Group> waiting;
  std::size_t segments = tiles::kMaxSegments + 1;
  for (double rounds = kRounds; segments > tiles::kMaxSegments; rounds *= 2) {
    waiting = make_groups(products, product_count, rounds * clusters, *launch);
    segments = 0;
    for (const Group& group : waiting) segments += group.products.size();
  }
  std::reverse(waiting.begin(), waiting.end());
  std::vector<Group> window;
  int used = 0;
  while (!waiting.empty() || !window.empty()) {
    while (window.size() < kWindow && !waiting.empty()) {
      window.push_back(waiting.back());
      waiting.pop_back();
    }
    for (Group& group : window) {
      const int product = group.products[group.next++];
      launch->tiles += group.count * launch->product[product].tiles;
      launch->segment[used++] = {launch->tiles, static_cast<int16_t>(product),
                                 static_cast<int16_t>(group.first)};
    }
    std::erase_if(window, [](const Group& group) { return group.next == group.products.size(); });
  }
}

// How many clusters the current device runs at once; tiles wait for each other, so that there may not be more.
cudaError_t resident_clusters(int* clusters) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess && major != 9) error = cudaErrorNotSupported;
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(tiles::multiply_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 tiles::kSharedBytes);
  }
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = tiles::kClusterBlocks;
  config.blockDim = tiles::kThreads;
  config.dynamicSmemBytes = tiles::kSharedBytes;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = tiles::kClusterBlocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaOccupancyMaxActiveClusters(clusters, tiles::multiply_tiles, &config);
  return error == cudaSuccess && *clusters < 1 ? cudaErrorNotSupported : error;
}

}  // namespace

int product_partials(int side) { return 16 * tiles::lower_tiles(tiles_of(side)); }

int64_t product_progress(const Product* products, int product_count) {
  int64_t count = 0;
  for (int i = 0; i < product_count; ++i) count += products[i].count;
  return count;
}

cudaError_t launch_products(const Product* products, int product_count, int* progress, cudaStream_t stream) {
  if (products == nullptr || progress == nullptr || product_count < 1 || product_count > kMaxProducts) {
    return cudaErrorInvalidValue;
  }
  int clusters = 0;
  cudaError_t error = resident_clusters(&clusters);
  if (error != cudaSuccess) return error;

  Launch launch = {};
  Operands operands(&launch);
  for (int i = 0; i < product_count && error == cudaSuccess; ++i) {
    error = fill_arguments(products[i], operands, &launch.product[i]);
  }
  if (error == cudaSuccess) error = link_chains(products, product_count, progress, &launch);
  if (error == cudaSuccess) fill_segments(products, product_count, clusters, &launch);
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(progress, 0, sizeof(int) * product_progress(products, product_count), stream);
  }
  if (error != cudaSuccess) return error;
  const int blocks = tiles::kClusterBlocks * std::min(launch.tiles, clusters);
  tiles::multiply_tiles<<<blocks, tiles::kThreads, tiles::kSharedBytes, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
