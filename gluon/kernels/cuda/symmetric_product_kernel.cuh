// The kernel behind symmetric_product.h: a persistent, warp-specialised product of tiles 128 x 256 x 64.
//
// Threads: warpgroup 0 is the producer (one lane asks the copy engine for boxes of 64 x 64), warpgroups 1 and 2 each
// own 64 of the tile's 128 rows: four m64n256k16 a stage, accumulators in 128 registers a thread. A ring of kStages
// slots of 48 KiB (A 128 x 64, B 256 x 64) connects them; the addends D and E come through the same ring, two slots of
// 128 x 128 each. Results wait in registers, in half precision, and go through shared memory to the copy engine during
// the next tile's first products; the mirrored copy is stored from a transposed box.
//
// On the diagonal A is a part of B's rows and is not loaded. Blocks draw the numbers of their tiles from a counter;
// which block computes a tile does not change its bits. A tile waits for tiles with smaller numbers alone, and these
// have been drawn before: some block is at work on them, so the wait ends.
//
// A full tile moves 48 KiB for 4.2 MFLOP a stage (85 flop a byte of L2), 1024 cycles of tensor cores. Seen on an H200:
// a tile's products take 13400 cycles for depth 768 (bound 12288) while nothing is stored, 15500 to 19000 beside the
// stores of 132 blocks, and 35200 for depth 2048 (bound 32768); the rest of a tile 600 cycles, 1400 with an addend.

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
  __device__ uint32_t tile_at(const Position& p) const { return barriers() + 16 * kStages + 4 * p.slot; }
};

__device__ inline void produce(const Launch& launch, const Shared& shared) {
  Position position;
  const auto acquire = [&](int tile, uint32_t bytes) {
    hopper::barrier_wait(shared.empty_at(position), position.parity ^ 1);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared.tile_at(position)), "r"(tile) : "memory");
    hopper::barrier_expect(shared.full_at(position), bytes);
  };
  int segment = 0, index = atomicAdd(launch.counter, 1);
  while (index < launch.tiles) {
    const int next = atomicAdd(launch.counter, 1);  // asked for now, looked at after the tile's loads
    const Tile tile = find_tile(launch, index, segment);
    const Arguments& product = launch.product[tile.product];
    if (product.wait_for != nullptr) hopper::await_count(product.wait_for + tile.matrix, product.wait_count);
    const bool load_a = !product.shared_operand || !(tile.half || tile.diagonal);
    const int boxes_b = tile.half ? 2 : 4;
#pragma unroll 1
    for (int k = 0; k < product.depth_tiles; ++k) {
      acquire(index, (boxes_b + (load_a ? 2 : 0)) * kBoxBytes);
#pragma unroll 1
      for (int i = 0; i < (load_a ? 6 : boxes_b); ++i) {
        const bool is_a = i >= 4;
        if (i >= boxes_b && !is_a) continue;
        const bool across =
            product.layout == Layout::kAcrossDepth || (product.layout == Layout::kMixed && !is_a);
        const int along = k * kDepth, first = 64 * i + (is_a ? tile.row - 256 : tile.column);
        hopper::load_box(shared.slot(position) + i * kBoxBytes, &launch.maps[is_a ? product.a : product.b],
                         shared.full_at(position), across ? first : along, across ? along : first,
                         tile.matrix);
      }
      position.advance();
    }
    for (int addend = 0; addend < product.addends; ++addend) {
      const CUtensorMap* map = &launch.maps[addend == 0 ? product.d : product.e];
      for (int half = 0; half < (tile.half ? 1 : 2); ++half) {
        acquire(index, 4 * kBoxBytes);
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
          hopper::load_box(shared.slot(position) + i * kBoxBytes, map, shared.full_at(position),
                           tile.column + 128 * half + 64 * (i % 2), tile.row + 64 * (i / 2), tile.matrix);
        }
        position.advance();
      }
    }
    index = next;
  }
  acquire(-1, 0);
}

__device__ inline void release(const Shared& shared, int slot) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) hopper::barrier_arrive(shared.empty_at({slot, 0}));
}

// Starts the products of one slot.
template <int kColumns, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_slot(float (&acc)[128], const Shared& shared,
                                              const Position& position, uint32_t offset_a, bool first) {
  constexpr int kStepA = (kAcrossA ? 16 * 128 : 32) >> 4, kStepB = (kAcrossB ? 16 * 128 : 32) >> 4;
  hopper::barrier_wait(shared.full_at(position), position.parity);
  const uint32_t slot = shared.slot(position);
  const uint64_t a = hopper::operand(slot + offset_a, kAcrossA), b = hopper::operand(slot, kAcrossB);
  hopper::products_begin();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const int add = first && step == 0 ? 0 : 1;
    if constexpr (kColumns == 256) {
      hopper::multiply_256<kAcrossA, kAcrossB>(acc, a + step * kStepA, b + step * kStepB, add);
    } else {
      hopper::multiply_128<kAcrossA, kAcrossB>(acc, a + step * kStepA, b + step * kStepB, add);
    }
  }
  hopper::products_commit();
}

// Lane's row and 16-byte chunk in a box for the 8 x 8 moves: matrices (rows 0-7, rows 8-15) x (chunk, chunk + 1).
__device__ __forceinline__ uint32_t box_address(uint32_t box, int row, int chunk) {
  return box + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// acc += factor * addend, from 128 x 128 slots.
__device__ __forceinline__ void add_addend(float (&acc)[128], const Shared& shared, Position& position,
                                           int group, float factor, bool half_tile) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && half_tile) break;
    hopper::barrier_wait(shared.full_at(position), position.parity);
#pragma unroll
    for (int q = 0; q < 8; ++q) {
      uint32_t r[4];
      const uint32_t box = shared.slot(position) + (2 * group + q / 4) * kBoxBytes;
      hopper::load_matrices(box_address(box, row, 2 * (q % 4) + lane / 16), r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 value = hopper::unpack_half(r[i]);
        acc[64 * half + 8 * q + 2 * i] += factor * value.x;
        acc[64 * half + 8 * q + 2 * i + 1] += factor * value.y;
      }
    }
    release(shared, position.slot);
    position.advance();
  }
}

// A finished tile on its way to C, in half precision: 64 columns at a time, and to the mirrored place. It waits in
// registers, so that the tensor cores are busy with the next tile meanwhile.
struct Pending {
  const Launch& launch;
  uint32_t entries[64];
  int product, matrix, row, column;
  int boxes = 0, mirrored = 0;  // 64 columns each; how many of them are stored twice

  __device__ explicit Pending(const Launch& launch) : launch(launch) {}

  __device__ __forceinline__ void take(const float (&acc)[128], const Tile& tile, int group) {
    product = tile.product;
    matrix = tile.matrix;
    row = tile.row + 64 * group;
    column = tile.column;
    boxes = tile.half ? 2 : 4;
    mirrored = !launch.product[product].symmetric || tile.half ? 0 : tile.diagonal ? 2 : 4;
#pragma unroll
    for (int i = 0; i < 64; ++i) entries[i] = hopper::pack_half(acc[2 * i], acc[2 * i + 1]);
  }

  // The whole warpgroup; `results` is its two boxes.
  template <int kBox>
  __device__ __forceinline__ void store(uint32_t results, int barrier) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0, mirror = kBox < mirrored;
    if (kBox >= boxes) return;
    if (leader) hopper::store_wait_read<0>();
    hopper::warpgroup_barrier(barrier);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = entries[16 * kBox + 4 * q + i];
      hopper::store_matrices(box_address(results, 16 * warp + lane % 16, 2 * q + lane / 16), r);
      if (mirror) {
        const int line = 16 * q + lane / 16 * 8 + lane % 8;
        hopper::store_transposed(box_address(results + kBoxBytes, line, 2 * warp + lane / 8 % 2), r);
      }
    }
    hopper::async_proxy_fence();
    hopper::warpgroup_barrier(barrier);
    if (leader) {
      const CUtensorMap* map = &launch.maps[launch.product[product].c];
      hopper::store_box(map, results, column + 64 * kBox, row, matrix);
      if (mirror) hopper::store_box(map, results + kBoxBytes, row, column + 64 * kBox, matrix);
      hopper::store_commit();
    }
  }

  __device__ __forceinline__ void store(int box, uint32_t results, int barrier) const {
    if (box == 0) store<0>(results, barrier);
    if (box == 1) store<1>(results, barrier);
    if (box == 2) store<2>(results, barrier);
    if (box == 3) store<3>(results, barrier);
  }

  // After the last store: tells who waits for this tile.
  __device__ __forceinline__ void finish() {
    if (boxes > 0 && threadIdx.x % 128 == 0 && launch.product[product].done != nullptr) {
      hopper::store_wait_all();
      hopper::publish(launch.product[product].done + matrix);
    }
    boxes = 0;
  }

  __device__ __forceinline__ void store_all(uint32_t results, int barrier) {
    for (int box = 0; box < 4; ++box) store(box, results, barrier);
    finish();
  }
};

// One tile's sum over the depth. One group of products stays in flight while the next slot is awaited. The previous
// tile is stored meanwhile, evenly spread: one box after another took 1800 to 2500 cycles each, more than a slot's 1024.
template <int kColumns, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void accumulate(float (&acc)[128], Pending& pending, const Shared& shared,
                                           Position& position, uint32_t offset_a, int depth_tiles,
                                           int group) {
  const uint32_t results = shared.results(group);
  hopper::products_fence(acc);
  multiply_slot<kColumns, kAcrossA, kAcrossB>(acc, shared, position, offset_a, true);
  pending.store<0>(results, 1 + group);
  position.advance();
  int box = 1;
#pragma unroll 1
  for (int k = 1; k < depth_tiles; ++k) {
    multiply_slot<kColumns, kAcrossA, kAcrossB>(acc, shared, position, offset_a, false);
    if (4 * k >= box * depth_tiles) pending.store(box++, results, 1 + group);
    hopper::products_wait<1>();
    release(shared, position.previous_slot());
    position.advance();
  }
  hopper::products_wait<0>();
  hopper::products_fence(acc);
  release(shared, position.previous_slot());
  for (; box < 4; ++box) pending.store(box, results, 1 + group);
  pending.finish();
}

// 1 / (safety |C|_F^(1/2)) from the partial sums of |C|_F^2, 0 for C = 0; the same in every lane.
__device__ inline float inverse_bound(const float* partials, int count, float safety) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < count; i += 32)
    sum += __ldcg(partials + i);  // written by other blocks of this launch
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum == 0 ? 0 : 1 / (safety * sqrtf(sqrtf(sum)));
}

__device__ inline float power(float x, int exponent) {
  float result = 1;
  for (int i = 0; i < exponent; ++i) result *= x;
  return result;
}

// One partial sum a warp; what is stored twice counts twice.
__device__ __forceinline__ void write_squares(const float (&acc)[128], const Tile& tile, int group,
                                              float* squares, int tiles) {
  float sum = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && tile.half) break;
    float part = 0;
#pragma unroll
    for (int i = 64 * half; i < 64 * half + 64; ++i) part += acc[i] * acc[i];
    sum += tile.half || (tile.diagonal && half == 1) ? part : 2 * part;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) {
    const int warp = 4 * group + threadIdx.x / 32 % 4;
    squares[(static_cast<int64_t>(tile.matrix) * tiles + tile.index) * 8 + warp] = sum;
  }
}

__device__ inline void consume(const Launch& launch, const Shared& shared, int group) {
  float acc[128];
  Pending pending(launch);
  Position position;
  int segment = 0;
  const uint32_t results = shared.results(group);
  for (;;) {
    // Where the next tile is late, it may be waiting for this very result.
    const bool ready = hopper::barrier_test(shared.full_at(position), position.parity);
    if (!hopper::warpgroup_all(1 + group, ready)) pending.store_all(results, 1 + group);
    hopper::barrier_wait(shared.full_at(position), position.parity);
    int index;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(index) : "r"(shared.tile_at(position)) : "memory");
    if (index < 0) break;
    const Tile tile = find_tile(launch, index, segment);
    const Arguments& product = launch.product[tile.product];
    uint32_t offset = kOperandA;
    if (product.shared_operand && tile.half) offset = 0;
    if (product.shared_operand && tile.diagonal) offset = 2 * kBoxBytes;
    offset += group * kBoxBytes;
    const int depth = product.depth_tiles;
    if (product.layout == Layout::kMixed) {
      accumulate<256, false, true>(acc, pending, shared, position, offset, depth, group);
    } else if (product.layout == Layout::kAlongDepth) {
      if (tile.half) {
        accumulate<128, false, false>(acc, pending, shared, position, offset, depth, group);
      } else {
        accumulate<256, false, false>(acc, pending, shared, position, offset, depth, group);
      }
    } else if (tile.half) {
      accumulate<128, true, true>(acc, pending, shared, position, offset, depth, group);
    } else {
      accumulate<256, true, true>(acc, pending, shared, position, offset, depth, group);
    }
    float alpha = product.alpha, beta = product.beta, gamma = product.gamma;
    if (product.bound != nullptr) {
      const float* partials = product.bound + static_cast<int64_t>(tile.matrix) * product.bound_partials;
      const float s = inverse_bound(partials, product.bound_partials, product.safety);
      alpha *= power(s, product.alpha_power);
      beta *= power(s, product.addend_power);
      gamma *= power(s, product.addend_power);
    }
#pragma unroll
    for (int i = 0; i < 128; ++i) acc[i] *= alpha;
    if (product.addends > 0) add_addend(acc, shared, position, group, beta, tile.half);
    if (product.addends > 1) add_addend(acc, shared, position, group, gamma, tile.half);
    if (product.squares != nullptr) write_squares(acc, tile, group, product.squares, product.tiles);
    pending.take(acc, tile, group);
  }
  pending.store_all(results, 1 + group);
  if (threadIdx.x % 128 == 0) hopper::store_wait_all();
}

__global__ void __launch_bounds__(kThreads, 1) multiply_tiles(const __grid_constant__ Launch launch) {
  extern __shared__ unsigned char memory[];
  const Shared shared{(hopper::shared_address(memory) + 1023) & ~1023u};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(shared.full_at({i, 0}), 1);
      hopper::barrier_init(shared.empty_at({i, 0}), 4 * kConsumers);
    }
    hopper::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<
        40>();  // 40 + 2 x 232 = 3 x 168, what the block was given; more would wait forever
    if (threadIdx.x == 0) produce(launch, shared);
  } else {
    hopper::more_registers<232>();
    consume(launch, shared, threadIdx.x / 128 - 1);
  }
}

}  // namespace gluon::cuda::tiles
