#include "gluon/kernels/cuda/symmetric_product.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gluon/kernels/cuda/symmetric_product_kernel.cuh"
#include "gluon/kernels/cuda/tensor_map.h"

namespace gluon::cuda {
namespace {

using tiles::Arguments;
using tiles::Launch;
using tiles::Layout;

int tiles_of(int side) { return (side + tiles::kTile - 1) / tiles::kTile; }

struct Extents {
  int rows, columns;
};

// The operands of a launch, each distinct view once.
class Operands {
 public:
  explicit Operands(Launch* launch) : launch_(launch) {}

  // Finds or adds the view's map.
  cudaError_t find(const HalfStack& stack, int count, Extents extents, int8_t* index) {
    const HalfView view{stack.data, stack.row_stride, stack.matrix_stride, count, extents.rows, extents.columns};
    const auto known = std::find(views_.begin(), views_.end(), view);
    *index = static_cast<int8_t>(known - views_.begin());
    if (known != views_.end()) return cudaSuccess;
    if (views_.size() == kMaxOperands) return cudaErrorInvalidValue;
    views_.push_back(view);
    return make_tensor_map(view, &launch_->maps[*index]);
  }

 private:
  Launch* launch_;
  std::vector<HalfView> views_;
};

struct Shapes {
  Extents a, b, c;
  int depth;
};

Shapes shapes_of(const Product& product) {
  const int m = product.rows, n = product.columns;
  switch (product.kind) {
    case ProductKind::kRowGram: return {{m, n}, {m, n}, {m, m}, n};
    case ProductKind::kColumnGram: return {{m, n}, {m, n}, {n, n}, m};
    case ProductKind::kSymmetric: return {{m, m}, {m, m}, {m, m}, m};
    case ProductKind::kLeft: return {{m, m}, {m, n}, {m, n}, m};
    default: return {{m, n}, {n, n}, {m, n}, n};
  }
}

cudaError_t fill_arguments(const Product& product, Operands& all, Arguments* arguments) {
  const bool gram = product.kind == ProductKind::kRowGram || product.kind == ProductKind::kColumnGram;
  const bool symmetric = gram || product.kind == ProductKind::kSymmetric;
  const bool no_columns = product.kind != ProductKind::kSymmetric && product.columns <= 0;
  if (product.count <= 0 || product.count > kMaxMatrices || product.rows <= 0 || no_columns) {
    return cudaErrorInvalidValue;
  }
  if ((product.squares != nullptr && !gram) || (product.identity != 0 && (!symmetric || product.squares != nullptr))) {
    return cudaErrorInvalidValue;
  }
  const Shapes shapes = shapes_of(product);
  const HalfStack& b = gram ? product.a : product.b;
  arguments->has_addend = product.d.data != nullptr;
  cudaError_t error = all.find(product.a, product.count, shapes.a, &arguments->a);
  if (error == cudaSuccess) error = all.find(b, product.count, shapes.b, &arguments->b);
  if (error == cudaSuccess) error = all.find(product.c, product.count, shapes.c, &arguments->c);
  if (error == cudaSuccess && arguments->has_addend) {
    error = all.find(product.d, product.count, shapes.c, &arguments->d);
  }
  if (error != cudaSuccess) return error;
  arguments->layout = product.kind == ProductKind::kColumnGram ? Layout::kAcrossDepth
                      : product.kind == ProductKind::kLeft     ? Layout::kMixed
                                                               : Layout::kAlongDepth;
  arguments->depth_tiles = (shapes.depth + tiles::kDepth - 1) / tiles::kDepth;
  arguments->symmetric = symmetric;
  arguments->shared_operand = symmetric && b.data == product.a.data;
  arguments->row_tiles = tiles_of(shapes.c.rows);
  arguments->column_tiles = tiles_of(shapes.c.columns);
  if (arguments->row_tiles > tiles::kMaxTiles || arguments->column_tiles > tiles::kMaxTiles) {
    return cudaErrorInvalidValue;
  }
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

// Makes each product wait for the previous one of its chain.
cudaError_t link_chains(std::span<const Product> products, int* progress, Launch* launch) {
  for (std::size_t i = 0; i < products.size(); ++i) {
    int* done = progress;
    progress += products[i].count;
    for (std::size_t next = i + 1; next < products.size(); ++next) {
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

// Consecutive matrices of a chain that pass through its products together.
struct Group {
  std::vector<int> products;
  int first, count;
  std::size_t next = 0;
};

// Groups in progress at a time, and how many rounds of all clusters each of their products takes at least: few enough
// that a product finds in the L2 cache what the one before it wrote, enough that a group does not wait for itself. On
// an H200, compared with whole products one after another: 144 matrices of 2048 x 2048 and 2048 x 8192 take 51 instead
// of 56 ms, those of 768 x 768 and 768 x 3072 the same time.
constexpr std::size_t kWindow = 5;
constexpr double kRounds = 0.75;

std::vector<Group> make_groups(std::span<const Product> products, double blocks, const Launch& launch) {
  const int product_count = static_cast<int>(products.size());
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

// Numbers the tiles: the groups of the window take turns, one product each.
void fill_segments(std::span<const Product> products, int clusters, Launch* launch) {
  std::vector<Group> waiting;
  std::size_t segments = tiles::kMaxSegments + 1;
  for (double rounds = kRounds; segments > tiles::kMaxSegments; rounds *= 2) {
    waiting = make_groups(products, rounds * clusters, *launch);
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
      launch->segment[used++] = {launch->tiles, static_cast<int16_t>(product), static_cast<int16_t>(group.first)};
    }
    std::erase_if(window, [](const Group& group) { return group.next == group.products.size(); });
  }
}

// Tiles wait for tiles of other clusters: a cooperative launch, see symmetric_product_kernel.cuh.
cudaError_t launch_together(const void* kernel, int clusters, Launch* launch, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {tiles::kClusterBlocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = tiles::kClusterBlocks * clusters;
  config.blockDim = tiles::kThreads;
  config.dynamicSmemBytes = tiles::kSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  void* arguments[] = {launch};
  cudaLaunchKernelExC(&config, kernel, arguments);
  return cudaGetLastError();
}

}  // namespace

int product_partials(int side) { return 16 * tiles::lower_tiles(tiles_of(side)); }

int64_t product_progress(std::span<const Product> products) {
  return std::accumulate(products.begin(), products.end(), int64_t{0},
                         [](int64_t sum, const Product& product) { return sum + product.count; });
}

cudaError_t launch_products(std::span<const Product> products, int* progress, cudaStream_t stream) {
  if (progress == nullptr || products.empty() || products.size() > kMaxProducts) return cudaErrorInvalidValue;
  const auto* kernel = reinterpret_cast<const void*>(tiles::multiply_tiles);
  int clusters = 0;
  cudaError_t error = resident_clusters(kernel, &clusters);
  Launch launch = {};
  Operands operands(&launch);
  for (std::size_t i = 0; i < products.size() && error == cudaSuccess; ++i) {
    error = fill_arguments(products[i], operands, &launch.product[i]);
  }
  if (error == cudaSuccess) error = link_chains(products, progress, &launch);
  if (error == cudaSuccess) fill_segments(products, clusters, &launch);
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(progress, 0, sizeof(int) * product_progress(products), stream);
  }
  return error == cudaSuccess ? launch_together(kernel, std::min(launch.tiles, clusters), &launch, stream) : error;
}

}  // namespace gluon::cuda
