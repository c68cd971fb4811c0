// The common part of persistent products that compute tiles of 256 x 256 by clusters of two blocks: a ring of slots in
// shared memory with two barriers each, buffers for results, and the sum over the depth.
//
// Each block of a cluster computes 128 rows of the tile, each of its two consumer warpgroups 64 of them. A slot holds
// 64 columns of depth: the 256 rows of B, of which each block loads half for both, and the block's own 128 rows of A. A
// slot is free when both blocks have released it.

#pragma once

#include "gluon/kernels/cuda/hopper.cuh"

namespace gluon::cuda::tiles {

inline constexpr int kTile = 256, kBlockRows = 128, kDepth = 64;
inline constexpr int kClusterBlocks = 2;
inline constexpr int kStages = 4;
inline constexpr int kBoxBytes = 64 * 64 * 2;
inline constexpr int kSlotBytes = 6 * kBoxBytes;  // B's four boxes, then A's two
inline constexpr int kOperandA = 4 * kBoxBytes;
inline constexpr int kResultBytes = 2 * kBoxBytes;  // of one warpgroup
inline constexpr int kThreads = 384, kConsumers = 2;
inline constexpr int kSharedBytes = 1024 + kStages * kSlotBytes + kConsumers * kResultBytes + 256;

// Registers per thread: at the start, and then in the producer's warpgroup, which gives some to the consumers'. Asking
// for more than the block has would hang, so resident_clusters() checks what the kernel starts with.
inline constexpr int kRegisters = 168, kProducerRegisters = 24, kConsumerRegisters = 240;
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * kRegisters);

// The tiles of a cluster: first_tile(), first_tile() + tile_stride(), ...
__device__ inline int first_tile() { return static_cast<int>(blockIdx.x) / kClusterBlocks; }
__device__ inline int tile_stride() { return static_cast<int>(gridDim.x) / kClusterBlocks; }

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

  __device__ explicit Shared(const void* memory) : base((hopper::shared_address(memory) + 1023) & ~1023u) {}
  __device__ uint32_t slot(const Position& p) const { return base + p.slot * kSlotBytes; }
  __device__ uint32_t results(int group) const { return base + kStages * kSlotBytes + group * kResultBytes; }
  __device__ uint32_t barriers() const { return base + kStages * kSlotBytes + kConsumers * kResultBytes; }
  __device__ uint32_t full_at(const Position& p) const { return barriers() + 8 * p.slot; }
  __device__ uint32_t empty_at(const Position& p) const { return barriers() + 8 * (kStages + p.slot); }
  __device__ uint32_t other_barrier(int i) const { return barriers() + 8 * (2 * kStages + i); }  // i < 8
};

// Called by one thread of the block.
__device__ inline void initialise(const Shared& shared) {
  for (int i = 0; i < kStages; ++i) {
    hopper::barrier_init(shared.full_at({i, 0}), 1);
    hopper::barrier_init(shared.empty_at({i, 0}), kClusterBlocks * 4 * kConsumers);
  }
}

// Frees the slot for the producers of both blocks.
__device__ inline void release(const Shared& shared, int slot) {
  __syncwarp();
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kClusterBlocks) hopper::barrier_arrive(shared.empty_at({slot, 0}), lane);
}

// Waits until the slot is free, and expects `bytes` of copies into it.
__device__ inline void acquire(const Shared& shared, const Position& position, uint32_t bytes) {
  hopper::barrier_wait(shared.empty_at(position), position.parity ^ 1);
  hopper::barrier_expect(shared.full_at(position), bytes);
}

// The address of a 16-byte chunk of a row in a swizzled box, for the 8 x 8 moves.
__device__ __forceinline__ uint32_t box_address(uint32_t box, int row, int chunk) {
  return box + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The operands of a warpgroup: their type, and whether their rows in memory run along the depth or across it.
template <typename Element_, int kColumns_, bool kAcrossA_, bool kAcrossB_> struct Inputs {
  using Element = Element_;
  static constexpr int kColumns = kColumns_;
  static constexpr bool kAcrossA = kAcrossA_, kAcrossB = kAcrossB_;
};

// Starts the products of one slot.
template <typename Inputs>
__device__ __forceinline__ void multiply_slot(float (&acc)[128], const Shared& shared, const Position& position,
                                              uint32_t offset_a, bool first) {
  constexpr bool kAcrossA = Inputs::kAcrossA, kAcrossB = Inputs::kAcrossB;
  constexpr int kStepA = (kAcrossA ? 16 * 128 : 32) >> 4, kStepB = (kAcrossB ? 16 * 128 : 32) >> 4;
  hopper::barrier_wait(shared.full_at(position), position.parity);
  const uint32_t slot = shared.slot(position);
  const uint64_t a = hopper::operand(slot + offset_a, kAcrossA);
  const uint64_t b = hopper::operand(slot, kAcrossB);
  hopper::products_begin();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    hopper::multiply<typename Inputs::Element, Inputs::kColumns, kAcrossA, kAcrossB>(
        acc, a + step * kStepA, b + step * kStepB, !first || step > 0);
  }
  hopper::products_commit();
}

// Sums one tile over the depth. One group of products stays in flight during the wait for the next slot, and slots are
// released first. Meanwhile the previous tile is stored, spread over the first two thirds of the depth and not by both
// warpgroups at once; `prepare` runs during the last products. The store is instantiated once per kind of product:
// inlined at three places it made the product 1.5 % slower.
template <typename Inputs, typename Pending, typename Prepare>
__device__ __forceinline__ void accumulate(float (&acc)[128], Pending& pending, const Shared& shared,
                                           Position& position, uint32_t offset_a, int depth, int group,
                                           Prepare prepare) {
  hopper::products_fence(acc);
  multiply_slot<Inputs>(acc, shared, position, offset_a, true);
  position.advance();
#pragma unroll 1
  for (int k = 1; k < depth; ++k) {
    multiply_slot<Inputs>(acc, shared, position, offset_a, false);
    hopper::products_wait<1>();
    release(shared, position.previous_slot());
    if (pending.is_due(k - group, depth)) pending.store_next(shared, group);
    position.advance();
  }
  prepare();
  hopper::products_wait<0>();
  hopper::products_fence(acc);
  release(shared, position.previous_slot());
}

}  // namespace gluon::cuda::tiles
