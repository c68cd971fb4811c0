// Which tiles a launch of products consists of, and which one has a given number.
//
// A product's result is cut into tiles of 128 x 256. Of a symmetric one row i (128 rows) needs the columns up to its
// diagonal block: pairs of blocks as full tiles, and for even i the diagonal block alone as a half tile of 128 x 128.
//
//   0 |h              h half tile, F full tile, D full tile that ends with the diagonal block
//   1 |DD             768 x 768 (six rows): 9 full and 3 half tiles instead of 18 full ones
//   2 |FFh
//   3 |FFDD

#pragma once

#include <cuda.h>

#include "gluon/kernels/cuda/symmetric_product.h"

namespace gluon::cuda::tiles {

inline constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 64;

enum class Layout : int8_t { kAlongDepth, kAcrossDepth, kMixed };  // of A and B in memory; mixed: B across

struct Arguments {
  int8_t a, b, c, d, e;  // operands, as indices of Launch::maps
  Layout layout;
  bool symmetric, shared_operand;  // lower tiles only; A is B
  int depth_tiles, addends;
  int tiles, row_tiles, column_tiles;  // of one matrix
  float alpha, beta, gamma;
  int alpha_power, addend_power;
  int bound_partials;
  float safety;
  const float* bound;
  float* squares;
  const int* wait_for;  // per matrix: warpgroups that have finished a tile of the previous product, or null
  int wait_count;       // all of them
  int* done;            // the same of this product, or null
};

// Tiles of the matrices [first_matrix, ...) of one product, numbered up to `end` in the launch: all of a matrix one
// after another, or only its full or its half tiles.
enum class Part { kAll, kFull, kHalf };

struct Segment {
  int end, product, first_matrix, per_matrix;
  Part part;
};

// Up to three segments where a chain ends, else one. Kernel parameters may be 32764 bytes.
struct Launch {
  CUtensorMap maps[kMaxOperands];
  Arguments product[kMaxProducts];
  Segment segment[kMaxProducts + 32];
  int tiles;
  int* counter;
};
static_assert(sizeof(Launch) <= 32764);

struct Tile {
  int product, matrix, index;  // index among the matrix's tiles
  int row, column;             // first entry
  bool half, diagonal;         // the diagonal block alone; a full tile that ends with it
};

// Full tiles of a symmetric matrix with `blocks` rows of tiles: row i has (i + 1) / 2.
__host__ __device__ inline int full_tiles(int blocks) {
  const int pairs = blocks / 2;
  return blocks % 2 == 0 ? pairs * pairs : pairs * (pairs + 1);
}

// `segment` is where the caller's previous tile was found, 0 at first: a block's tiles have growing numbers.
__device__ inline Tile find_tile(const Launch& launch, int index, int& segment_index) {
  while (index >= launch.segment[segment_index].end) ++segment_index;
  const int begin = segment_index == 0 ? 0 : launch.segment[segment_index - 1].end;
  const Segment& segment = launch.segment[segment_index];
  const Arguments& product = launch.product[segment.product];
  Tile tile;
  tile.product = segment.product;
  const int matrix = (index - begin) / segment.per_matrix;
  tile.index = (index - begin) - matrix * segment.per_matrix;
  tile.matrix = segment.first_matrix + matrix;
  const int full = product.symmetric ? full_tiles(product.row_tiles) : product.tiles;
  if (segment.part == Part::kHalf) tile.index += full;
  tile.half = tile.index >= full;
  tile.diagonal = false;
  int row, column;  // in units of 128 rows and 256 columns
  if (!product.symmetric) {
    // The shorter side runs fastest: what the multiprocessors share at a time stays in L2.
    const bool rows_first = product.row_tiles < product.column_tiles;
    const int side = rows_first ? product.row_tiles : product.column_tiles;
    const int slow = tile.index / side, fast = tile.index - slow * side;
    row = rows_first ? fast : slow;
    column = rows_first ? slow : fast;
  } else if (tile.half) {
    column = tile.index - full;
    row = 2 * column;
  } else {
    // Rows 2r - 1 and 2r have r full tiles each, r (r - 1) come before them.
    int r = static_cast<int>((1 + sqrtf(1 + 4.0f * tile.index)) / 2);
    while (r * (r - 1) > tile.index) --r;
    while (r * (r + 1) <= tile.index) ++r;
    const int rest = tile.index - r * (r - 1);
    row = rest < r ? 2 * r - 1 : 2 * r;
    column = rest < r ? rest : rest - r;
    tile.diagonal = row == 2 * r - 1 && column == r - 1;
  }
  tile.row = row * kTileRows;
  tile.column = column * kTileColumns;
  return tile;
}

}  // namespace gluon::cuda::tiles
