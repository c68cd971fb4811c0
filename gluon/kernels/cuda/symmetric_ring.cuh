// What the threads of a block share in symmetric_product_kernel.cuh: a ring of slots in shared memory with two barriers
// each, and room for results on their way out.

#pragma once

#include "gluon/kernels/cuda/symmetric_hopper.cuh"
#include "gluon/kernels/cuda/symmetric_tiles.cuh"

namespace gluon::cuda::tiles {

inline constexpr int kStages = 4;
inline constexpr int kBoxBytes = 64 * 64 * 2;
inline constexpr int kSlotBytes = 6 * kBoxBytes;  // B's four boxes, then A's two
inline constexpr int kOperandA = 4 * kBoxBytes;
inline constexpr int kResultBytes = 2 * kBoxBytes;  // of one warpgroup: a direct and a mirrored box
inline constexpr int kThreads = 384, kConsumers = 2;
inline constexpr int kSharedBytes = 1024 + kStages * kSlotBytes + kConsumers * kResultBytes + 256;

// A position in the ring; `parity` is that of the slot's current use.
struct Position {
  int slot = 0;
  uint32_t parity = 0;

  __device__ int previous_slot() const { return (slot + kStages - 1) % kStages; }

  __device__ void advance() {
    if (++slot < kStages) return;
    slot = 0;
    parity ^= 1;
  }
};

struct Shared {
  uint32_t base;  // address

  __device__ uint32_t slot(const Position& p) const { return base + p.slot * kSlotBytes; }
  __device__ uint32_t results(int group) const { return base + kStages * kSlotBytes + group * kResultBytes; }
  __device__ uint32_t barriers() const { return base + kStages * kSlotBytes + kConsumers * kResultBytes; }
  __device__ uint32_t full_at(const Position& p) const { return barriers() + 8 * p.slot; }
  __device__ uint32_t empty_at(const Position& p) const { return barriers() + 8 * (kStages + p.slot); }
};

// Tells the producers of both blocks.
__device__ inline void release(const Shared& shared, int slot) {
  __syncwarp();
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kClusterBlocks) hopper::barrier_arrive(shared.empty_at({slot, 0}), lane);
}

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

// Lane's row and 16-byte chunk in a box for the 8 x 8 moves: matrices (rows 0-7, rows 8-15) x (chunk, chunk + 1).
__device__ __forceinline__ uint32_t box_address(uint32_t box, int row, int chunk) {
  return box + row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace gluon::cuda::tiles
