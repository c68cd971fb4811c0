// The tiles of a launch of products, and their numbers.
//
// A product's result is cut into tiles of 256 x 256. A cluster of two blocks computes a tile, each block 128 rows of
// it. Of a symmetric result only the tiles on and below the diagonal are computed:
//
//   0 |0            768 x 768: six tiles instead of nine
//   1 |1 2
//   2 |3 4 5

#pragma once

#include <cuda.h>

#include "gluon/kernels/cuda/symmetric_product.h"
#include "gluon/kernels/cuda/tile_ring.cuh"

namespace gluon::cuda::tiles {

// How the rows of A and B run in memory; kMixed: only those of B run across.
enum class Layout : int8_t { kAlongDepth, kAcrossDepth, kMixed };

// Flat, in this order: with other layouts ptxas finds too few registers and serializes the wgmma (its message C7511).
struct Arguments {
  int8_t a, b, c, d;  // operands, as indices of Launch::maps
  Layout layout;
  bool symmetric, shared_operand, has_addend;  // only lower tiles; A is B; there is a D
  int depth_tiles;
  int tiles, row_tiles, column_tiles;  // of one matrix
  float alpha, beta, identity;
  int alpha_power, addend_power;
  int bound_partials;
  float safety;
  const float* bound;
  float* squares;
  const int* wait_for;  // per matrix: warpgroups that have finished a tile of the previous product, or null
  int wait_count;       // the value of a finished matrix
  int* done;            // the counters of this product, or null
  int rows, columns;    // of a target
  float* const* targets;
  const float* radii;
  const Verdict* verdict;
  float target_factor;
};

// Tiles of consecutive matrices of one product; their numbers in the launch end before `end`.
struct Segment {
  int end;
  int16_t product, first_matrix;
};
inline constexpr int kMaxSegments = 1000;

// Kernel parameters may take up to 32764 bytes.
struct Launch {
  CUtensorMap maps[kMaxOperands];
  Arguments product[kMaxProducts];
  Segment segment[kMaxSegments];
  int tiles;
};
static_assert(sizeof(Launch) <= 32764);

__host__ __device__ inline int lower_tiles(int side) { return side * (side + 1) / 2; }

inline constexpr int kMaxTiles = 0x10000;  // along one side

// Packed into two registers, since the kernel has none to spare.
class Tile {
 public:
  Tile() = default;
  __device__ Tile(int product, int matrix, int row, int column)
      : product_matrix_(product << 16 | matrix), row_column_(row << 16 | column) {}

  __device__ int product() const { return static_cast<int>(product_matrix_ >> 16); }
  __device__ int matrix() const { return static_cast<int>(product_matrix_ & 0xffff); }

  // The first entry.
  __device__ int row() const { return kTile * static_cast<int>(row_column_ >> 16); }
  __device__ int column() const { return kTile * static_cast<int>(row_column_ & 0xffff); }
  __device__ bool on_diagonal() const { return row() == column(); }

  // The number among the tiles of a symmetric matrix.
  __device__ int index() const { return lower_tiles(row() / kTile) + column() / kTile; }

 private:
  uint32_t product_matrix_, row_column_;
};

// `segment` is the segment of the caller's previous tile, 0 at first: the numbers of a block's tiles grow.
__device__ __forceinline__ Tile find_tile(const Launch& launch, int number, int& segment) {
  while (number >= launch.segment[segment].end) ++segment;
  const int product = launch.segment[segment].product;
  const Arguments& arguments = launch.product[product];
  const int inside = number - (segment == 0 ? 0 : launch.segment[segment - 1].end);
  const int place = inside / arguments.tiles, index = inside - place * arguments.tiles;
  const int matrix = launch.segment[segment].first_matrix + place;
  if (arguments.symmetric) {
    int row = static_cast<int>((sqrtf(1 + 8.0f * index) - 1) / 2);
    while (lower_tiles(row) > index) --row;
    while (lower_tiles(row + 1) <= index) ++row;
    return {product, matrix, row, index - lower_tiles(row)};
  }
  // The shorter side runs fastest, so that operands the multiprocessors share at a time stay in L2.
  const bool rows_first = arguments.row_tiles < arguments.column_tiles;
  const int side = rows_first ? arguments.row_tiles : arguments.column_tiles;
  const int slow = index / side, fast = index - slow * side;
  return {product, matrix, rows_first ? fast : slow, rows_first ? slow : fast};
}

// Whether a block's rows of A are its half of B: on the diagonal of A A^T.
__device__ __forceinline__ bool a_is_in_b(const Arguments& product, const Tile& tile) {
  return product.shared_operand && tile.on_diagonal();
}

// Whether the block computes only the left half of its rows: the first block of a tile on the diagonal.
__device__ __forceinline__ bool is_half(const Arguments& product, const Tile& tile, int rank) {
  return product.symmetric && tile.on_diagonal() && rank == 0;
}

// Whether box `box` (64 columns) of a block's tile is also stored above the diagonal.
__device__ __forceinline__ bool is_mirrored(const Arguments& product, const Tile& tile, int rank, int box) {
  return product.symmetric && (!tile.on_diagonal() || (rank == 1 && box < 2));
}

// Barriers, one per warpgroup (id + group): its threads agree; its result buffer is free; it is full.
inline constexpr int kAgree = 1, kResultsFree = 3, kResultsFull = 5, kResultThreads = 128 + 32;

}  // namespace gluon::cuda::tiles
