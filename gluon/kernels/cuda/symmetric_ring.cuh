// What symmetric products add to the ring of tile_ring.cuh: which parts of a tile are loaded, computed and stored twice.

#pragma once

#include "gluon/kernels/cuda/symmetric_tiles.cuh"
#include "gluon/kernels/cuda/tile_ring.cuh"

namespace gluon::cuda::tiles {

// On the diagonal of A A^T a block's rows of A are its half of B.
__device__ __forceinline__ bool a_is_in_b(const Arguments& product, const Tile& tile) {
  return product.shared_operand && tile.on_diagonal();
}

// The first block of a diagonal tile leaves its right half to the second one.
__device__ __forceinline__ bool is_half(const Arguments& product, const Tile& tile, int rank) {
  return product.symmetric && tile.on_diagonal() && rank == 0;
}

// Whether the 64 columns `box` of a block's tile are stored above the diagonal, too.
__device__ __forceinline__ bool is_mirrored(const Arguments& product, const Tile& tile, int rank, int box) {
  return product.symmetric && (!tile.on_diagonal() || (rank == 1 && box < 2));
}

// Barriers, + warpgroup: its threads agree; its results may be written, by it; they may be sent, by a warp.
inline constexpr int kAgree = 1, kResultsFree = 3, kResultsFull = 5, kResultThreads = 128 + 32;

}  // namespace gluon::cuda::tiles
